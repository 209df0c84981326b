"""What is asked of watched jobs to be run again, or now: triggers, backfills, redrives and reruns."""

from __future__ import annotations

import asyncio
import math
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.faults.accounts import AGAIN, ALIVE, Row
from tests.faults.changes import Changes
from tests.faults.processes import ask, letters_of, planned, rows_of
from tests.faults.receiver import Receiver
from tests.processes.conftest import TENANT, Installation
from workflows.contracts.base import rfc3339
from workflows.contracts.names import opaque_id

FIRST = "~1"
"""Ends the names of first generations here, which the job's own would not tell from the job."""


@dataclass
class Filling:
    """A backfill as it was asked for, and each look at its progress."""

    job: str
    id: str
    only: str
    instants: list[float]
    told: list[dict[str, Any]]
    max_concurrent: int = 1
    cancelled: dict[str, Any] | None = None
    """The answer to its cancellation; without ``in_flight`` if it was not the first."""
    cancelled_at: float = math.inf

    @property
    def ended(self) -> bool:
        return bool(self.told[-1]["status"] != "running")


@dataclass
class Requested:
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
    refs: dict[str, str] = field(default_factory=dict)
    """Of interval jobs: the name of the present generation."""
    buried: dict[str, str] = field(default_factory=dict)
    """The jobs of generations that were deleted, by their names."""
    changes: dict[str, Changes] = field(default_factory=dict)
    """Of interval jobs, by generation."""
    fillings: list[Filling] = field(default_factory=list)
    redriven: dict[str, dict[str, int]] = field(default_factory=dict)
    """By job: the keys of dead letters whose redrive was accepted, with their last attempt before it."""
    bulks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Redrives by filter: id, and the dead letters that were there before."""

    async def trigger(self, job: str, request: str) -> int:
        """Run ``job`` once, now; the status of the answer."""
        body, headers = {"request": request}, {"idempotency-key": request}
        answer = await ask(self.installation, "POST", f"/jobs/{job}/trigger", json=body, headers=headers)
        if answer.status_code == 202:
            self.asked.setdefault(job, []).append(answer.json()["key"])
        return answer.status_code

    async def backfill(self, job: str, request: str, begin: float, end: float, only: str,
                       at_once: int = 1) -> Filling:  # fmt: skip
        """Run again, or for the first time, what lies in ``[begin, end)``, asked for twice."""
        asked = {"from": text_of(begin), "to": text_of(end), "only": only, "max_concurrent": at_once}
        headers = {"idempotency-key": request}
        answers = [
            await ask(self.installation, "POST", f"/jobs/{job}/backfill", json=asked, headers=headers)
            for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [202, 202], [one.text for one in answers]
        told = answers[0].json()
        assert answers[1].json()["id"] == told["id"]
        instants = [at for at in planned(self.past[job], self.anchors[job][1], end) if begin <= at < end]
        self.fillings.append(filling := Filling(job, told["id"], only, instants, [told], at_once))
        return filling

    async def look(self, filling: Filling) -> bool:
        """Whether it has ended."""
        path = f"/jobs/{filling.job}/backfills/{filling.id}"
        answer = await ask(self.installation, "GET", path)
        assert answer.status_code == 200, answer.text
        filling.told.append(answer.json())
        return bool(answer.json()["status"] != "running")

    async def cancel(self, filling: Filling) -> None:
        """Nothing of it is to begin any more."""
        path = f"/jobs/{filling.job}/backfills/{filling.id}"
        answer = await ask(self.installation, "DELETE", path)
        filling.cancelled_at = time.time()
        assert answer.status_code == 200, answer.text
        told = answer.json()
        filling.told.append(told)
        # one that had ended before, or a repeat, names nothing though something may go on
        filling.cancelled = told | ({"in_flight": None} if answer.extensions["tries"] > 1 else {})

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

    async def redrive_all(self, request: str, **wanted: str) -> None:
        """By filter (``job``, ``since``, ``until``): all that there are now, of deleted jobs too."""
        there = await letters_of(self.installation, **wanted)
        path, headers = "/dead-letters/redrive", {"idempotency-key": request}
        answer = await ask(self.installation, "POST", path, json=wanted, headers=headers)
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
        await asyncio.gather(*(self._end(job) for job in self.anchors if job not in busy))
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await asyncio.gather(*map(self._until_filled, self.fillings))
                for bulk, there in self.bulks.items():
                    await self._until_redriven(bulk, there)
                for generation in (*self.anchors, *self.buried):
                    while any(
                        row.outcome in ALIVE and row.trigger in (*AGAIN, "rerun")
                        for row in await self.rows(generation)
                    ):
                        await asyncio.sleep(0.3)

    async def _end(self, job: str) -> None:
        answer = await ask(self.installation, "POST", f"/jobs/{job}/pause", json={"reason": "done"})
        assert answer.status_code == 200, answer.text

    async def rows(self, generation: str) -> list[Row]:
        """Of a job, or of a generation that was deleted."""
        if (job := self.buried.get(generation)) is None:
            return await rows_of(self.installation, generation)
        found = await rows_of(self.installation, job, deleted=True)
        return [row for row in found if row.key.startswith(key_prefix(generation))]

    async def _until_filled(self, filling: Filling) -> None:
        while not await self.look(filling):
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
            if letter["id"] not in refused and letter["job"] in (*self.anchors, *self.singles):
                self._redriven(letter)


def key_prefix(generation: str) -> str:
    """What all its keys begin with; the first one's name is the job's."""
    return f"{TENANT}/{generation.removesuffix(FIRST)}:"


def text_of(instant: float) -> str:
    return rfc3339(datetime.fromtimestamp(instant, UTC))
