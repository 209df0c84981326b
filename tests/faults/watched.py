"""Jobs of a fault test: created, remembered with what they promise, paused at the end, and balanced."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tests.faults.accounts import ALIVE, Account, Backfill, Balance, epoch
from tests.faults.again import RUN_AGAIN
from tests.faults.changes import Changes, Period
from tests.faults.ledger import balance
from tests.faults.processes import LEASE, ask, letters_of, rows_of, soon
from tests.faults.requested import FIRST, Requested, key_prefix, text_of
from workflows.contracts.base import rfc3339

SETTLED_WITHIN = 60.0
"""Seconds from the pause until every run has ended and every row is written."""
FREE_WITHIN = 30.0
"""Seconds from a deletion until its id is free, should the job be the only one who knows of it."""
AT_ITS_END = ("unfinished", "lost", "unrecorded", "contradicted", *RUN_AGAIN)
"""Findings that may be of a row, or a word, that is on its way."""


@dataclass
class Watched(Requested):
    async def every(self, job: str, seconds: int, first_in: int = 1, *, before: int = 0,
                    **definition: Any) -> float:  # fmt: skip
        """A job due each ``seconds`` from an instant on, which is given back. Its schedule reaches back by
        ``before`` occurrences, and to others in between if the job is created sooner."""
        first = soon(first_in)
        anchor = rfc3339(datetime.fromtimestamp(epoch(first) - before * seconds, UTC))
        made = await self._create(job, schedule={"every": seconds, "anchor": anchor}, **definition)
        created, self.past[job] = epoch(made["created_at"]), epoch(anchor)
        begin = next(at for at in count(int(epoch(anchor)), seconds) if at > created)
        self.anchors[job] = (float(begin), seconds)
        self._begin(job, f"{job}{FIRST}", Period(epoch(anchor), seconds, created, created))
        return float(begin)

    async def once_more(self, job: str, ref: str, seconds: int, **definition: Any) -> None:
        """A job that was deleted, created anew as generation ``ref`` with the grid of whole seconds.

        The index may not have heard of the deletion, and the job cannot be asked while no worker is there:
        then the id is in use until one is.
        """
        schedule = {"every": seconds, "anchor": text_of(0)}
        made = await self._create(job, key=ref, in_use_for=FREE_WITHIN, schedule=schedule, **definition)
        created = epoch(made["created_at"])
        self._begin(job, ref, Period(0, seconds, created, created))

    def _begin(self, job: str, ref: str, period: Period) -> None:
        self.refs[job] = ref
        self.changes[ref] = Changes([period])

    async def once(self, job: str, in_seconds: int = 0, **definition: Any) -> float:
        """A one-off; its instant is given back."""
        made = await self._create(job, schedule={"in": in_seconds}, **definition)
        self.singles[job] = epoch(made["schedule"]["at"])
        return self.singles[job]

    async def _create(self, job: str, *, key: str | None = None, in_use_for: float = 0,
                      **definition: Any) -> dict[str, Any]:  # fmt: skip
        definition = {
            "id": job,
            "target": self.receiver.target(job),
            "heartbeat_timeout": LEASE,
            "retry": {"initial_interval": 1, "max_attempts": 4},
            **definition,
        }
        headers = {"idempotency-key": f"create-{key or job}"}
        end = time.monotonic() + in_use_for
        while True:
            answer = await ask(self.installation, "POST", "/jobs", json=definition, headers=headers)
            if answer.status_code != 409 or time.monotonic() > end:
                break
            await asyncio.sleep(0.3)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def account(self, generation: str) -> Account:
        """Of a job's present generation, or of one that was deleted."""
        ref = self.refs.get(generation, f"{generation}{FIRST}" if generation in self.singles else generation)
        rows, job = await self.rows(generation), self.buried.get(generation, generation)
        until, changes = self.ended_at.get(job, time.time()), self.changes.get(ref)

        def mine(key: str) -> bool:
            return key.startswith(key_prefix(ref))

        return Account(
            generation,
            [self.singles[job]] if changes is None else changes.planned(until, rows),
            [one for one in self.receiver.at(job) if mine(one.key)],
            rows,
            asked=[key for key in self.asked.get(job, []) if mine(key)],
            backfills=[
                Backfill(one.id, one.only, one.instants, one.told, one.max_concurrent, one.cancelled,
                         one.cancelled_at)
                for one in self.fillings if one.job == generation
            ],
            redriven={key: last for key, last in self.redriven.get(job, {}).items() if mine(key)},
            letters={
                one["key"]: one["status"]
                for one in await letters_of(self.installation, job=job) if mine(one["key"])
            },
            perhaps=[] if changes is None else changes.perhaps(until),
            changes=changes,
        )  # fmt: skip

    async def accounts(self) -> list[Account]:
        return await asyncio.gather(
            *(self.account(one) for one in (*self.anchors, *self.singles, *self.buried))
        )

    async def settle(self, within: float = SETTLED_WITHIN, **rules: Any) -> Balance:
        """Pause what goes on for ever, wait until nothing is alive and all is written, and compare.

        ``rules`` are those of :func:`tests.faults.ledger.balance`.
        """
        await asyncio.gather(*(self._end(job) for job in self.anchors))
        await self._rest(within)
        # What a pause held up is counted when it ends: so up to that instant everything has a row.
        await asyncio.gather(*(self._end_again(job) for job in self.anchors))
        await self._rest(within)
        end = time.monotonic() + within
        while True:
            found = balance(await self.accounts(), lease=LEASE, **rules)
            pending = found.of_kind(*AT_ITS_END)
            if not pending or time.monotonic() > end:
                return found
            await asyncio.sleep(0.3)

    async def _end_again(self, job: str) -> None:
        self.ended_at[job] = time.time()
        answer = await ask(self.installation, "POST", f"/jobs/{job}/resume")
        assert answer.status_code == 200, answer.text
        await self._end(job)

    async def _rest(self, within: float) -> None:
        """Until no run is alive, or ``within`` is over: then the ledger says what does not end."""
        end = time.monotonic() + within
        await asyncio.gather(*(self._rests(one, end) for one in (*self.anchors, *self.singles, *self.buried)))

    async def _rests(self, generation: str, end: float) -> None:
        while time.monotonic() < end:
            if not any(row.outcome in ALIVE for row in await self.rows(generation)):
                return
            await asyncio.sleep(0.2)

    async def until_ended(self, job: str, within: float = 60) -> str:
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
