"""Jobs of a fault test: created, remembered with what they promise, paused at the end, and balanced."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tests.faults.accounts import AGAIN, ALIVE, Account, Backfill, Balance, epoch
from tests.faults.again import RUN_AGAIN
from tests.faults.ledger import balance
from tests.faults.processes import LEASE, ask, letters_of, planned, rows_of, soon
from tests.faults.receiver import Receiver
from tests.processes.conftest import Installation
from workflows.contracts.base import rfc3339
from workflows.contracts.names import opaque_id

SETTLED_WITHIN = 60.0
"""Seconds from the pause until every run has ended and every row is written."""
AT_ITS_END = ("unfinished", "lost", "unrecorded", "contradicted", *RUN_AGAIN)
"""Findings that may be of a row, or a word, that is on its way."""


@dataclass
class Filling:
    """A backfill as it was asked for, and each look at its progress."""

    job: str
    id: str
    only: str
    instants: list[float]
    told: list[dict[str, Any]]


@dataclass
class Watched:
    installation: Installation
    receiver: Receiver
    anchors: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Of interval jobs: first instant and period in seconds."""
    past: dict[str, float] = field(default_factory=dict)
    """Of interval jobs: the first instant of the schedule, which may lie before the job."""
    singles: dict[str, float] = field(default_factory=dict)
    """Of one-offs: the instant."""
    asked: dict[str, list[str]] = field(default_factory=dict)
    """Keys of accepted triggers, by job."""
    ended_at: dict[str, float] = field(default_factory=dict)
    """Until when an interval job was active."""

    fillings: list[Filling] = field(default_factory=list)
    redriven: dict[str, dict[str, int]] = field(default_factory=dict)
    """By job: the keys of dead letters whose redrive was accepted, with their last attempt before it."""
    bulks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Redrives by filter: id, and the dead letters that were there before."""

    async def every(self, job: str, seconds: int, first_in: int = 1, *, before: int = 0,
                    **definition: Any) -> float:  # fmt: skip
        """A job due each ``seconds`` from an instant on, which is given back. Its schedule reaches back by
        ``before`` occurrences, and to others in between if the job is created sooner."""
        first = soon(first_in)
        anchor = rfc3339(datetime.fromtimestamp(epoch(first) - before * seconds, UTC))
        made = await self._create(job, schedule={"every": seconds, "anchor": anchor}, **definition)
        created = epoch(made["created_at"])
        begin = next(at for at in count(int(epoch(anchor)), seconds) if at > created)
        self.anchors[job] = (float(begin), seconds)
        self.past[job] = epoch(anchor)
        return float(begin)

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

    async def backfill(self, job: str, request: str, begin: float, end: float, only: str) -> Filling:
        """Run again, or for the first time, what lies in ``[begin, end)``, asked for twice."""
        asked = {"from": _text(begin), "to": _text(end), "only": only}
        headers = {"idempotency-key": request}
        answers = [
            await ask(self.installation, "POST", f"/jobs/{job}/backfill", json=asked, headers=headers)
            for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [202, 202], [one.text for one in answers]
        told = answers[0].json()
        assert answers[1].json()["id"] == told["id"]
        instants = [at for at in planned(self.past[job], self.anchors[job][1], end) if begin <= at < end]
        self.fillings.append(filling := Filling(job, told["id"], only, instants, [told]))
        return filling

    async def look(self, filling: Filling) -> bool:
        """Whether it has ended."""
        path = f"/jobs/{filling.job}/backfills/{filling.id}"
        answer = await ask(self.installation, "GET", path)
        assert answer.status_code == 200, answer.text
        filling.told.append(answer.json())
        return bool(answer.json()["status"] != "running")

    async def letters(self) -> list[dict[str, Any]]:
        """The dead letters of these jobs."""
        found = await letters_of(self.installation)
        return [one for one in found if one["job"] in self.anchors or one["job"] in self.singles]

    async def redrive(self, letter: dict[str, Any], request: str) -> int:
        """Run one again; the status of the answer."""
        path, headers = f"/dead-letters/{letter['id']}/redrive", {"idempotency-key": request}
        answer = await ask(self.installation, "POST", path, headers=headers)
        if answer.status_code == 202:
            assert answer.json()["key"] == letter["key"], answer.text
            self._redriven(letter)
        return answer.status_code

    def _redriven(self, letter: dict[str, Any]) -> None:
        known = self.redriven.setdefault(letter["job"], {})
        known[letter["key"]] = max(known.get(letter["key"], 0), letter["last_attempt"])

    async def redrive_all(self, job: str, request: str) -> None:
        """By filter: all that the job has now."""
        there = await letters_of(self.installation, job)
        path, headers = "/dead-letters/redrive", {"idempotency-key": request}
        answer = await ask(self.installation, "POST", path, json={"job": job}, headers=headers)
        assert answer.status_code == 202, answer.text
        self.bulks[answer.json()["id"]] = there

    async def rerun(self, job: str, request: str, chosen: random.Random) -> int | None:
        """Run one that succeeded once more; the status of the answer; None: there is none."""
        done = [row for row in await rows_of(self.installation, job) if row.outcome == "succeeded"]
        if not done:
            return None
        row, headers = chosen.choice(done), {"idempotency-key": request}
        answer = await ask(
            self.installation, "POST", f"/executions/{opaque_id(row.key)}/rerun",
            json={"target_body": True}, headers=headers,
        )  # fmt: skip
        if answer.status_code == 202:
            self.asked.setdefault(job, []).append(answer.json()["key"])
        return answer.status_code

    async def until_run_again(self, within: float) -> None:
        """Until nothing of what was asked for is under way, which a pause would hold up; if ``within`` is
        over before that, the ledger says what. Jobs that nobody asked anything of are paused before."""
        busy = {filling.job for filling in self.fillings} | {*self.redriven, *self.asked}
        busy |= {letter["job"] for there in self.bulks.values() for letter in there}
        await asyncio.gather(*(self._pause(job) for job in self.anchors if job not in busy))
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                for filling in self.fillings:
                    while not await self.look(filling):
                        await asyncio.sleep(0.3)
                for bulk, there in self.bulks.items():
                    await self._until_redriven(bulk, there)
                for job in self.anchors:
                    while any(
                        row.outcome in ALIVE and row.trigger in (*AGAIN, "rerun")
                        for row in await rows_of(self.installation, job)
                    ):
                        await asyncio.sleep(0.3)

    async def _until_redriven(self, bulk: str, there: list[dict[str, Any]]) -> None:
        """Of those it could not redrive it names some; each was closed meanwhile, or alive."""
        while True:
            answer = await ask(self.installation, "GET", f"/bulk/{bulk}")
            assert answer.status_code == 200, answer.text
            if answer.json()["state"] == "completed":
                break
            await asyncio.sleep(0.3)
        refused = {one["dead_letter"] for one in answer.json()["problems"]}
        for letter in there:
            if letter["id"] not in refused:
                self._redriven(letter)

    async def account(self, job: str) -> Account:
        rows = await rows_of(self.installation, job)
        return Account(
            job,
            self._instants(job),
            self.receiver.at(job),
            rows,
            asked=self.asked.get(job, []),
            backfills=[
                Backfill(one.id, one.only, one.instants, one.told) for one in self.fillings if one.job == job
            ],
            redriven=self.redriven.get(job, {}),
            letters={one["key"]: one["status"] for one in await letters_of(self.installation, job)},
        )

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
            pending = found.of_kind(*AT_ITS_END)
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
                if not any(row.outcome in ALIVE for row in await rows_of(self.installation, job)):
                    break
                await asyncio.sleep(0.2)

    async def until_ended(self, job: str, within: float = 30) -> str:
        """The outcome of the only execution of ``job``."""
        async with asyncio.timeout(within):
            while True:
                rows = await rows_of(self.installation, job)
                if len(rows) == 1 and rows[0].outcome not in ALIVE:
                    return rows[0].outcome
                await asyncio.sleep(0.1)

    async def goes_on(self, job: str, until: float) -> bool:
        """Whether by ``until`` (monotonic) an occurrence that is due from now on is accounted for."""
        now = time.time()
        while not any(row.last >= now for row in await rows_of(self.installation, job)):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.3)
        return True

    async def delete(self) -> None:
        for job in (*self.anchors, *self.singles):
            answer = await ask(self.installation, "DELETE", f"/jobs/{job}")
            assert answer.status_code == 200, answer.text


def _text(instant: float) -> str:
    return rfc3339(datetime.fromtimestamp(instant, UTC))
