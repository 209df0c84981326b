"""Whether the machine ran while a test did: most tests here are about instants, and others share it.

A test that fails while its process stood still for a second shows nothing. It ends as ``StoodStill``, is
run again, twice at most, and listed as ``RERUN`` with how long that was; a failure on a machine that ran
counts at once (decision 21).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator

import pytest

_TICK_S = 0.1
TOO_LONG_S = 1.0


class StoodStill(Exception):
    """What the test has shown is no fault: ask it again."""


class Watch:
    """Notices when nothing of this process ran, be it its machine that stood still."""

    def __init__(self) -> None:
        self._gaps: deque[tuple[float, float]] = deque(maxlen=1000)
        threading.Thread(target=self._tick, daemon=True, name="standstill").start()

    def longest(self, since: float) -> float:
        """Seconds of the longest standstill that ended after ``since``, on the monotonic clock."""
        return max((length for end, length in self._gaps if end > since), default=0.0)

    def _tick(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            if now - before > 2 * _TICK_S:
                self._gaps.append((now, now - before))
            before = now


_watch = Watch()


def _judged(phase: str) -> Generator[None, object, object]:
    begun = time.monotonic()
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        time.sleep(2 * _TICK_S)  # the tick that notices
        stood = _watch.longest(begun)
        if stood < TOO_LONG_S:
            raise
        raise StoodStill(f"for {stood:.1f} s during the {phase}, which then failed") from error


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _judged("setup"))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _judged("test"))
