"""Jobs of a fault test: created, remembered with what they promise, paused at the end, and balanced."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from tests.faults.ledger import ALIVE, Account, Balance, balance, epoch
from tests.faults.processes import LEASE, ask, planned, rows_of, soon
from tests.faults.receiver import Receiver
from tests.processes.conftest import Installation

SETTLED_WITHIN = 60.0
"""Seconds from the pause until every run has ended and every row is written."""


@dataclass
class Watched:
    installation: Installation
    receiver: Receiver
    anchors: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Of interval jobs: first instant and period in seconds."""
    singles: dict[str, float] = field(default_factory=dict)
    """Of one-offs: the instant."""
    asked: dict[str, list[str]] = field(default_factory=dict)
    """Keys of accepted triggers, by job."""
    ended_at: dict[str, float] = field(default_factory=dict)
    """Until when an interval job was active."""

    async def every(self, job: str, seconds: int, first_in: int = 1, **definition: Any) -> float:
        """A job due each ``seconds`` from an instant on, which is given back."""
        anchor = soon(first_in)
        await self._create(job, schedule={"every": seconds, "anchor": anchor}, **definition)
        self.anchors[job] = (epoch(anchor), seconds)
        return epoch(anchor)

    async def once(self, job: str, in_seconds: int = 0, **definition: Any) -> float:
        """A one-off; its instant is given back."""
        made = await self._create(job, schedule={"in": in_seconds}, **definition)
        self.singles[job] = epoch(made["schedule"]["at"])
        return self.singles[job]

    async def _create(self, job: str, **definition: Any) -> dict[str, Any]:
        definition = {
            "id": job,
            "target": self.receiver.target(job),
            "heartbeat_timeout": LEASE,
            "retry": {"initial_interval": 1, "max_attempts": 4},
            **definition,
        }
        headers = {"idempotency-key": f"create-{job}"}
        answer = await ask(self.installation, "POST", "/jobs", json=definition, headers=headers)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def trigger(self, job: str, request: str) -> int:
        """Run ``job`` once, now; the status of the answer."""
        body, headers = {"request": request}, {"idempotency-key": request}
        answer = await ask(self.installation, "POST", f"/jobs/{job}/trigger", json=body, headers=headers)
        if answer.status_code == 202:
            self.asked.setdefault(job, []).append(answer.json()["key"])
        return answer.status_code

    async def account(self, job: str) -> Account:
        rows = await rows_of(self.installation, job)
        asked = self.asked.get(job, [])
        return Account(job, self._instants(job), self.receiver.at(job), rows, asked)

    async def accounts(self) -> list[Account]:
        return [await self.account(job) for job in (*self.anchors, *self.singles)]

    def _instants(self, job: str) -> list[float]:
        if job in self.singles:
            return [self.singles[job]]
        anchor, every = self.anchors[job]
        return planned(anchor, every, self.ended_at.get(job, time.time()))

    async def settle(self, within: float = SETTLED_WITHIN, **rules: Any) -> Balance:
        """Pause what goes on for ever, wait until nothing is alive and all is written, and compare.

        ``rules`` are those of :func:`tests.faults.ledger.balance`.
        """
        await asyncio.gather(*(self._pause(job) for job in self.anchors))
        await self._rest(within)
        # What a pause held up is counted when it ends: so up to that instant everything has a row.
        for job in self.anchors:
            self.ended_at[job] = time.time()
            answer = await ask(self.installation, "POST", f"/jobs/{job}/resume")
            assert answer.status_code == 200, answer.text
            await self._pause(job)
        await self._rest(within)
        end = time.monotonic() + within
        while True:
            found = balance(await self.accounts(), **rules)
            pending = found.of_kind("unfinished", "lost", "unrecorded", "contradicted")
            if not pending or time.monotonic() > end:
                return found
            await asyncio.sleep(0.3)

    async def _pause(self, job: str) -> None:
        answer = await ask(self.installation, "POST", f"/jobs/{job}/pause", json={"reason": "done"})
        assert answer.status_code == 200, answer.text

    async def _rest(self, within: float) -> None:
        """Until no run is alive, or ``within`` is over: then the ledger says what does not end."""
        end = time.monotonic() + within
        for job in (*self.anchors, *self.singles):
            while time.monotonic() < end:
                if not any(row.outcome in ALIVE for row in (await self.account(job)).rows):
                    break
                await asyncio.sleep(0.2)

    async def until_ended(self, job: str, within: float = 30) -> str:
        """The outcome of the only execution of ``job``."""
        async with asyncio.timeout(within):
            while True:
                rows = (await self.account(job)).rows
                if len(rows) == 1 and rows[0].outcome not in ALIVE:
                    return rows[0].outcome
                await asyncio.sleep(0.1)

    async def goes_on(self, job: str, until: float) -> bool:
        """Whether by ``until`` (monotonic) an occurrence that is due from now on is accounted for."""
        now = time.time()
        while not any(row.last >= now for row in (await self.account(job)).rows):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.3)
        return True

    async def delete(self) -> None:
        for job in (*self.anchors, *self.singles):
            answer = await ask(self.installation, "DELETE", f"/jobs/{job}")
            assert answer.status_code == 200, answer.text
