"""The jobs of a random mix, and how their targets behave."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.faults.receiver import Callback, Caller

TIMEOUT = 4
HANGS = 12
"""Seconds; longer than a message is waited for."""
SILLY = ("-1", "soon", "1", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 99 Oct 2026 07:28:00 GMT")


@dataclass(frozen=True)
class Kind:
    """Jobs of a round: how often, and how their target behaves."""

    name: str
    every: int
    moody: bool
    definition: dict[str, Any] = field(default_factory=dict)

    group: str | None = None
    fillable: bool = True
    """Whether a backfill gets its turn before long."""
    at_once: int = 1
    """Runs of one of its backfills, at most."""
    meddled: frozenset[str] = frozenset()
    """What is done to it: ``paused``, ``skipped``, ``moved``, ``joining`` (its group) or ``mortal``."""

    def in_round(self, number: int) -> dict[str, Any]:
        """Its definition: groups are not shared between rounds."""
        concurrency = {"policy": "forbid", **self.definition.get("concurrency", {})}
        if self.group is not None and "joining" not in self.meddled:
            concurrency["group"] = f"{self.group}-{number}"
        return {"timeout": TIMEOUT, **self.definition, "concurrency": concurrency}

    @property
    def may_overlap(self) -> bool:
        return bool(self.definition.get("concurrency", {}).get("policy") == "allow")


def grace(seconds: int) -> dict[str, Any]:
    """A job that is always behind, as a moody one may be, gets over an outage by what it misses."""
    return {"catch_up": {"grace": seconds}}


KINDS = (
    Kind("prompt", 1, False),
    Kind("restless", 1, True, grace(3), fillable=False),
    Kind("moody", 2, True, grace(5)),
    Kind("slow", 3, True, {"retry": {"initial_interval": 2, "max_attempts": 2}, **grace(10)}),
    Kind("rare", 5, True, {"max_reaps": 1, "catch_up": {"policy": "all"}}),
    Kind("queue", 2, True, {"concurrency": {"policy": "queue", "max_queued": 3}}, fillable=False),
    Kind("replace", 2, True, {"concurrency": {"policy": "replace"}}, fillable=False),
    Kind("allow", 2, True, {"concurrency": {"policy": "allow", "limit": 3}, **grace(10)}),
    Kind("twin-one", 3, True, grace(10), group="twins"),
    Kind(
        "twin-two",
        2,
        True,
        {"concurrency": {"policy": "queue", "max_queued": 3}, **grace(10)},
        group="twins",
        fillable=False,
    ),
    Kind("brittle", 1, True, {"timeout": 1, "retry": {"max_attempts": 1}, **grace(3)}, fillable=False),
    Kind(
        "callback", 3, True, {"completion": "callback", "timeout": 12, **grace(10)}, fillable=False,
        meddled=frozenset({"paused"}),
    ),
    Kind(
        "wide", 2, True, {"concurrency": {"policy": "allow", "limit": 4}, **grace(10)}, at_once=3,
        meddled=frozenset({"skipped"}),
    ),
    Kind("fickle", 2, True, grace(10), fillable=False, meddled=frozenset({"paused", "skipped", "moved"})),
    Kind("steady", 2, False, grace(10), group="pool", fillable=False, meddled=frozenset({"paused"})),
    Kind("busy", 2, True, grace(10), group="pool", fillable=False),
    Kind("joiner", 2, True, grace(10), group="pool", fillable=False, meddled=frozenset({"joining"})),
    Kind(
        "mortal", 2, True, {"timeout": 1, "retry": {"max_attempts": 1}, **grace(3)}, fillable=False,
        meddled=frozenset({"mortal"}),
    ),
)  # fmt: skip


class Mood:
    """What a moody target does with a request, by chance. Worse while there is ``trouble``."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.trouble = False
        self.calm = False
        """It takes whatever comes, at once: then what waits behind its runs gets its turn."""

    async def __call__(self, caller: Caller) -> web.StreamResponse:
        draw = 1.0 if self.calm else self._chance.random() * (0.5 if self.trouble else 1.0)
        if "carillon-callback" in caller.request.headers and draw > 0.26:
            return caller.accept(self._work)
        if draw < 0.05:
            return await caller.hang()
        if draw < 0.10:
            return await caller.drip()
        if draw < 0.16:
            await asyncio.sleep(self._chance.uniform(0, 0.5))
            return caller.reset()
        if draw < 0.22:
            return caller.answer(500)
        if draw < 0.26:
            return caller.answer(429, retry_after=self._chance.choice(SILLY))
        if draw < 0.60:
            await asyncio.sleep(self._chance.uniform(0.1, 3))
        return caller.answer()

    async def _work(self, callback: Callback) -> None:
        """As a target with a callback does: it renews its lease, and says how it ended, or falls silent."""
        end = time.monotonic() + (0 if self.calm else self._chance.uniform(0, 6))
        draw = 1.0 if self.calm else self._chance.random()
        while time.monotonic() < end:
            if await callback.heartbeat() != 204:
                callback.fall_silent()  # the run belongs to a newer delivery, or to nobody
                return
            await asyncio.sleep(0.8)
        if draw < 0.1:
            callback.fall_silent()
        elif draw < 0.2:
            await callback.fail()
        else:
            await callback.complete()


class AlertMood:
    """What the receiver of alerts does with a message: it mostly takes it, unless there is ``trouble``."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.trouble = False

    async def __call__(self) -> int | None:
        draw = self._chance.random() * (0.3 if self.trouble else 2.0)
        if draw < 0.1:
            return 500
        if draw < 0.15:
            return None
        if draw < 0.2:
            await asyncio.sleep(0.5)
            return 200
        if draw < 0.3:
            with suppress(TimeoutError):
                async with asyncio.timeout(HANGS):
                    while self.trouble:
                        await asyncio.sleep(0.1)
            return None
        return 200
