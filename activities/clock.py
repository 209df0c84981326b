"""The worker's clocks, injected everywhere so that tests can turn them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Protocol

SAMPLES_NEEDED = 20
SAMPLES_KEPT = 600.0
"""Seconds a sample counts."""
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

    A sample is the instant a start was received less the server's instant of that start: the offset
    plus a delay that is never negative, so the least of many is the best bound there is. A burst
    delays a hundred starts in a row, so the least of the last ten minutes counts; samples are kept
    on the clock that is never set, so a wall clock that jumps is noticed at once all the same.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._least: deque[tuple[float, float]] = deque()
        """(when, bound), both on the elapsed clock; bounds ascending, so the first is the least."""
        self._seen = 0

    def sample(self, started: datetime) -> None:
        """An activity was received just now that the server started at ``started``."""
        self._seen += 1
        self._bound(self._clock.elapsed() - started.timestamp())

    def measured(self, ahead: timedelta) -> None:
        """The offset was measured: it is ``ahead`` at most, just now."""
        self._seen = max(self._seen, SAMPLES_NEEDED)
        self._bound(ahead.total_seconds() + self._clock.elapsed() - self._clock.now().timestamp())

    def _bound(self, bound: float) -> None:
        now = self._clock.elapsed()
        while self._least and self._least[-1][1] >= bound:
            self._least.pop()
        self._least.append((now, bound))
        while self._least[0][0] < now - SAMPLES_KEPT:
            self._least.popleft()

    @property
    def seconds(self) -> float | None:
        """None until enough starts have been seen."""
        if self._seen < SAMPLES_NEEDED:
            return None
        return self._least[0][1] + self._clock.now().timestamp() - self._clock.elapsed()

    @property
    def is_ahead(self) -> bool:
        offset = self.seconds
        return offset is not None and offset > AHEAD_LIMIT.total_seconds()

    @property
    def is_behind(self) -> bool:
        """Or both clocks were set back in the last ten minutes, as happens where they are one."""
        offset = self.seconds
        return offset is not None and offset < -AHEAD_LIMIT.total_seconds()


class RunClock:
    """The worker's clock as one run reads it: put right by what is proven of it, and by no more.

    A start received before the instant at which the server started it proves that our clock is behind by
    as much at least. Only the run's own start counts as a proof: where server and worker have one clock,
    setting it back makes every earlier sample say the same.
    """

    def __init__(self, clock: Clock, offset: ServerOffset, started: datetime) -> None:
        """``started``: the server's instant of the run's start, which was received just now."""
        self._clock = clock
        self._offset = offset
        behind = started - clock.now()
        self._behind = behind if behind > AHEAD_LIMIT else timedelta(0)

    def now(self) -> datetime:
        """What a run waits by: not after the server's time, unless the worker's clock is set ahead."""
        return self._clock.now() + self._behind

    def server_now(self) -> datetime:
        """What a run is judged and recorded by: the best estimate of the server's time."""
        now, offset = self._clock.now(), self._offset.seconds
        if offset is None:
            return now + self._behind
        if self._offset.is_ahead:
            return now - timedelta(seconds=offset)
        # what was proven at the start may have been set right since
        return now + max(min(self._behind, timedelta(seconds=-offset)), timedelta(0))

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def elapsed(self) -> float:
        return self._clock.elapsed()


async def sleep_until(clock: Clock, instant: datetime, patience: float) -> bool:
    """Return True when the wall clock has reached ``instant``: never early, whatever is done to it.

    False: ``clock.elapsed()`` went past ``patience`` first.
    """
    while (left := (instant - clock.now()).total_seconds()) > 0:
        if clock.elapsed() > patience:
            return False
        step = left if left <= FINAL_STEP else min(left - FINAL_STEP / 2, 10 * FINAL_STEP)
        await clock.sleep(min(step, max(patience - clock.elapsed(), FINAL_STEP)))
    return True
