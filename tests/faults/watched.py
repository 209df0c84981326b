"""Jobs of a fault test: created, remembered with what they promise, paused at the end, and balanced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.ledger import ALIVE, Account, Balance, balance, epoch
from tests.faults.processes import LEASE, account_of, ask, planned, soon
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
    paused_at: dict[str, float] = field(default_factory=dict)

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

    async def accounts(self, jobs: Iterable[str] | None = None) -> list[Account]:
        wanted = [*self.anchors, *self.singles] if jobs is None else list(jobs)
        return [
            await account_of(self.installation, self.receiver, job, self._instants(job)) for job in wanted
        ]

    def _instants(self, job: str) -> list[float]:
        if job in self.singles:
            return [self.singles[job]]
        anchor, every = self.anchors[job]
        return planned(anchor, every, self.paused_at.get(job, time.time()))

    async def settle(self, within: float = SETTLED_WITHIN, **rules: Any) -> Balance:
        """Pause what goes on for ever, wait until nothing is alive and all is written, and compare.

        ``rules`` are those of :func:`tests.faults.ledger.balance`.
        """
        for job in self.anchors:
            if job not in self.paused_at:
                at = time.time()
                answer = await ask(self.installation, "POST", f"/jobs/{job}/pause", json={"reason": "done"})
                assert answer.status_code == 200, answer.text
                self.paused_at[job] = at
        end = time.monotonic() + within
        while True:
            found = balance(await self.accounts(), **rules)
            pending = found.of_kind("unfinished", "lost", "unrecorded", "contradicted")
            if not pending or time.monotonic() > end:
                return found
            await asyncio.sleep(0.3)

    async def until_ended(self, job: str, within: float = 30) -> str:
        """The outcome of the only execution of ``job``."""
        async with asyncio.timeout(within):
            while True:
                [account] = await self.accounts([job])
                if len(account.rows) == 1 and account.rows[0].outcome not in ALIVE:
                    return account.rows[0].outcome
                await asyncio.sleep(0.1)
