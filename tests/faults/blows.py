"""The faults of a random mix: to processes, the database, the targets and the receiver of alerts."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from tests.faults.moods import AlertMood, Mood
from tests.faults.overlaps import NOTICED_WITHIN
from tests.faults.processes import LEASE, database_locked, frozen, pids, send
from tests.faults.second_api import SecondApi
from tests.processes.conftest import Installation

DEATHS, TRUCE = 8, 25.0
"""After so many deaths of a part it is left alone for so many seconds: ``carillon up`` gives a child up
that never lives for ten seconds, and that is no fault to test here."""


class Blows:
    """The faults, dealt at random until they are to end. Each heals by itself."""

    def __init__(
        self, installation: Installation, second: SecondApi, moods: list[Mood], alerts: AlertMood,
        chance: random.Random,
    ) -> None:  # fmt: skip
        self._installation = installation
        self._second = second
        self._moods = moods
        self._alerts = alerts
        self._chance = chance
        self._deaths: dict[str, deque[float]] = {
            part: deque(maxlen=DEATHS) for part in ("worker", "api", "server")
        }
        self._locked = asyncio.Lock()
        self.dealt: Counter[str] = Counter()
        self.stood_still: list[tuple[float, float]] = []

    async def deal(self, seconds: float) -> None:
        """Returns when the last one has healed."""
        kinds: dict[str, tuple[int, Callable[[], Awaitable[bool]]]] = {
            "worker killed": (4, lambda: self._kill("worker")),
            "worker stopped": (2, lambda: self._kill("worker", signal.SIGTERM)),
            "worker frozen": (4, lambda: self._freeze("worker", 0.3, LEASE + 3)),
            "server killed": (1, lambda: self._kill("server")),
            "server frozen": (1, lambda: self._freeze("server", 0.3, 3)),
            "API killed": (2, lambda: self._kill("api")),
            "API frozen": (1, lambda: self._freeze("api", 0.3, 3)),
            "database locked": (2, self._lock),
            "target in trouble": (2, lambda: self._trouble(self._chance.choice(self._moods))),
            "alerts in trouble": (2, lambda: self._trouble(self._alerts)),
        }
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while (left := end - time.monotonic()) > 0:
                [name] = self._chance.choices(list(kinds), [weight for weight, _ in kinds.values()])
                group.create_task(self._one(name, kinds[name][1]))
                await asyncio.sleep(min(left, self._chance.uniform(0.3, 1.7)))

    async def _one(self, name: str, blow: Callable[[], Awaitable[bool]]) -> None:
        if await blow():
            self.dealt[name] += 1

    def _alive(self, part: str) -> list[int]:
        """The second API process is an API process like any other."""
        beside = [self._second.pid] if part == "api" and self._second.pid is not None else []
        return [*pids(self._installation, part), *beside]

    async def _kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> bool:
        deaths, now = self._deaths[part], time.monotonic()
        if len(deaths) == DEATHS:
            if now - deaths[-1] < TRUCE:
                return False
            deaths.clear()
        found = self._alive(part)
        if not found:
            return False
        deaths.append(now)
        send(self._chance.choice(sorted(found)), number)
        return True

    async def _freeze(self, part: str, least: float, most: float) -> bool:
        found = self._alive(part)
        seconds = self._chance.uniform(least, most)
        if not found:
            return False
        begun = time.time()
        async with frozen(self._chance.choice(sorted(found))):
            await asyncio.sleep(seconds)
        if part == "worker":
            self.stood_still.append((begun, time.time() + NOTICED_WITHIN))
        return True

    async def _lock(self) -> bool:
        seconds = self._chance.uniform(0.5, 4)
        if self._locked.locked():
            return False
        async with self._locked, database_locked(self._installation):
            await asyncio.sleep(seconds)
        return True

    async def _trouble(self, mood: Mood | AlertMood) -> bool:
        seconds = self._chance.uniform(2, 8)
        mood.trouble = True
        await asyncio.sleep(seconds)
        mood.trouble = False
        return True
