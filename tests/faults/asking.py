"""What people ask for while faults fall: one-offs, triggers, reruns, redrives and backfills."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tests.faults.requested import text_of
from tests.faults.watched import Watched

BEFORE = 20
"""Occurrences of the schedule that lie before the job was created."""
FEW = 3
"""Occurrences of a backfill, dead letters redriven one by one, or jobs of which all are: at most so many."""


class Asking:
    """Each thing is asked for until somebody answers."""

    def __init__(self, watched: Watched, number: int, chance: random.Random, *, fillable: dict[str, int],
                 lasting: list[str]) -> None:  # fmt: skip
        """``fillable``: jobs that a backfill of their past does not keep busy for minutes, and how many of
        its runs there may be at once; ``lasting``: those that nobody deletes."""
        self._watched = watched
        self._number = number
        self._chance = chance
        self._fillable = fillable
        self._lasting = lasting
        self._count = 0

    async def go_on(self, seconds: float) -> None:
        """Returns when the last wish was answered. The first is a backfill."""
        kinds: dict[Callable[[], Coroutine[Any, Any, None]], int] = {
            self._once: 2,
            self._trigger: 2,
            self._backfill: 2,
            self._redrive: 3,
            self._cancel: 1,
            self._redrive_all: 1,
            self._redrive_of_a_time: 1,
            self._rerun: 1,
            self._look: 1,
        }
        end, what = time.monotonic() + seconds, self._backfill
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < end:
                await asyncio.sleep(self._chance.uniform(0.2, 1))
                group.create_task(what())
                [what] = self._chance.choices(list(kinds), list(kinds.values()))

    async def at_the_end(self) -> None:
        """What the last blows have left, by filter; and one that has gone well."""
        await asyncio.gather(self._redrive_all(), self._redrive(), self._rerun())

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._number}-{self._count}"

    async def _once(self) -> None:
        await self._watched.once(self._name("once"), self._chance.randrange(3))

    async def _trigger(self) -> None:
        job = self._chance.choice(self._lasting)
        status = await self._watched.trigger(job, self._name("asked"))
        assert status in (202, 409), status

    async def _backfill(self) -> None:
        """Of a time before the job, or of the last seconds, in which some have failed or were skipped."""
        job, only = self._chance.choice(list(self._fillable)), self._chance.choice(("missing", "all"))
        at_once = self._chance.randint(1, self._fillable[job])
        first, every = self._watched.anchors[job]
        begin, length = (
            first - self._chance.randint(FEW, BEFORE) * every,
            self._chance.randint(1, FEW * at_once) * every,
        )
        if self._chance.random() < 0.5 and first < time.time() - 1:
            begin = max(first, int(time.time()) - length)
        end = min(begin + length, int(time.time()))
        if begin < end:
            await self._watched.backfill(job, self._name("filled"), begin, end, only, at_once)

    async def _cancel(self) -> None:
        running = [one for one in self._watched.fillings if not one.ended and one.cancelled is None]
        if running:
            await self._watched.cancel(self._chance.choice(running))

    async def _look(self) -> None:
        running = [one for one in self._watched.fillings if not one.ended]
        if running:
            await self._watched.look(self._chance.choice(running))

    async def _redrive(self) -> None:
        if letters := await self._watched.letters():
            for letter in self._chance.sample(letters, min(FEW, len(letters))):
                status = await self._watched.redrive(letter, self._name("redriven"))
                assert status in (202, 404, 409), status

    async def _redrive_all(self) -> None:
        jobs = sorted({one["job"] for one in await self._watched.letters()})
        for job in self._chance.sample(jobs, min(FEW, len(jobs))):
            await self._watched.redrive_all(self._name("redrive"), job=job)

    async def _redrive_of_a_time(self) -> None:
        """Of whatever job, the last seconds but two."""
        until = time.time() - 2
        since = until - self._chance.randint(3, 10)
        await self._watched.redrive_all(self._name("redrive"), since=text_of(since), until=text_of(until))

    async def _rerun(self) -> None:
        job = self._chance.choice(self._lasting)
        status = await self._watched.rerun(job, self._name("rerun"), self._chance)
        assert status in (None, 202, 409), status
