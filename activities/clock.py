"""The worker's clocks, injected everywhere so that tests can turn them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Protocol

SAMPLES = 100
SAMPLES_NEEDED = 20
AHEAD_LIMIT = timedelta(milliseconds=250)
FINAL_STEP = 1.0
"""Longest sleep near the instant, in seconds."""


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall clock, UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep on the monotonic clock."""
        ...

    def elapsed(self) -> float:
        """Seconds on a clock that is never set and goes on while the machine sleeps."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def elapsed(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerOffset:
    """How far this machine's clock is ahead of the server's, at most.

    A sample is receive time minus the server's time of the start, so it is the offset plus a
    delay that is never negative; the minimum of the last 100 is the best bound there is.
    """

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    def sample(self, received: datetime, started: datetime) -> None:
        self._samples.append((received - started).total_seconds())

    @property
    def seconds(self) -> float | None:
        """None until enough starts have been seen."""
        return min(self._samples) if len(self._samples) >= SAMPLES_NEEDED else None

    @property
    def is_ahead(self) -> bool:
        offset = self.seconds
        return offset is not None and offset > AHEAD_LIMIT.total_seconds()


async def sleep_until(clock: Clock, instant: datetime, patience: float) -> bool:
    """Return True when the wall clock has reached ``instant``: never early, whatever is done to it.

    False: ``clock.elapsed()`` went past ``patience`` first.
    """
    while (left := (instant - clock.now()).total_seconds()) > 0:
        if clock.elapsed() > patience:
            return False
        await clock.sleep(left if left <= FINAL_STEP else min(left - FINAL_STEP / 2, 10 * FINAL_STEP))
    return True
