"""People who change jobs while faults fall: pauses, skips, edits, deletions, limits of groups."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.faults.changing import Changing
from tests.faults.crowds import Limit

LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Meddled:
    """Jobs of a round by what is done to them."""

    paused: list[str]
    skipped: list[str]
    moved: list[str]
    """Their schedules and policies are edited."""
    joining: dict[str, str]
    """They join these groups, and leave them."""
    mortal: dict[str, tuple[int, dict[str, Any]]]
    """They are deleted, and created anew with this interval and definition."""
    groups: list[str]
    """Their limits are changed."""


class Meddling:
    def __init__(self, changing: Changing, meddled: Meddled, number: int, chance: random.Random) -> None:
        self._changing, self._meddled, self._number, self._chance = changing, meddled, number, chance
        self._count = 0
        self._paused: set[str] = set()
        self.done = 0
        self.memberships: dict[str, list[tuple[float, float]]] = {job: [] for job in meddled.joining}
        """From when until when a job that joins and leaves was in its group for sure."""

    async def go_on(self, seconds: float) -> None:
        """Returns when the last change was answered, and every pause is over."""
        kinds: dict[Callable[[], Coroutine[Any, Any, None]], int] = {
            self._pause: 2,
            self._skip: 3,
            self._move: 2,
            self._join_or_leave: 2,
            self._bury: 1,
            self._limit: 2,
        }
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < end:
                await asyncio.sleep(self._chance.uniform(0.3, 1.2))
                [what] = self._chance.choices(list(kinds), list(kinds.values()))
                group.create_task(self._one(what))

    async def _one(self, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await what()
        self.done += 1

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._number}-{self._count}"

    async def _pause(self) -> None:
        job, seconds = self._chance.choice(self._meddled.paused), self._chance.uniform(0.5, LONGEST_PAUSE)
        if job in self._paused:
            return
        self._paused.add(job)
        paused = await self._changing.pause(job, self._name("pause"))
        await asyncio.sleep(seconds)
        await self._changing.resume(job, paused, self._name("resume"))
        self._paused.discard(job)

    async def _skip(self) -> None:
        job, ahead = self._chance.choice(self._meddled.skipped), self._chance.randrange(3)
        think_better, after = self._chance.random() < 0.3, self._chance.uniform(0, 2)
        skipped = await self._changing.skip(job, self._name("skip"), ahead)
        if skipped is not None and think_better:
            await asyncio.sleep(after)
            await self._changing.unskip(job, skipped, self._name("unskip"))

    async def _move(self) -> None:
        """Its schedule as often as not; its policy among those that let no two runs overlap."""
        job, policy = (
            self._chance.choice(self._meddled.moved),
            self._chance.choice(("forbid", "queue", "replace")),
        )
        every = self._chance.choice((None, 1, 2, 3))
        await self._changing.edit(job, every, concurrency={"policy": policy})

    async def _join_or_leave(self) -> None:
        job = self._chance.choice(list(self._meddled.joining))
        known = self.memberships[job]
        if known and known[-1][1] == float("inf"):
            known[-1] = (known[-1][0], time.time())
            await self._changing.edit(job, concurrency={"group": None})
        elif not known or known[-1][1] != 0:
            known.append((0, 0))  # on its way
            await self._changing.edit(job, concurrency={"group": self._meddled.joining[job]})
            known[-1] = (time.time(), float("inf"))

    async def _bury(self) -> None:
        job = self._chance.choice(list(self._meddled.mortal))
        every, definition = self._meddled.mortal[job]
        running = self._chance.choice(("finish", "cancel"))
        await self._changing.bury(job, running=running, every=every, **definition)

    async def _limit(self) -> None:
        await self._changing.limit(self._chance.choice(self._meddled.groups), self._chance.randint(1, 3))

    def limits(self, members: list[str]) -> list[Limit]:
        """Of the groups, with ``members`` that were in them all the time."""
        always = {job: [(0.0, float("inf"))] for job in members}
        for name in self._meddled.groups:
            joining = {job: spans for job, spans in self.memberships.items()
                       if self._meddled.joining[job] == name}  # fmt: skip
            self._changing.limits[name].members = {**always, **joining}
        return list(self._changing.limits.values())
