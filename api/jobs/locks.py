"""One change in flight per job and process.

The server takes ten updates in flight per workflow; callers that queue here instead do not use
them up, and are answered in the order they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api.problems import Kind, ProblemError

MAX_WAITING = 32
"""Callers that may wait for one job; those beyond are told to come back."""


class JobLocks:
    """Locks by name that exist only while somebody holds or awaits them."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._callers: dict[str, int] = {}
        self._max_waiting = max_waiting

    @asynccontextmanager
    async def held(self, name: str, *, within_s: float) -> AsyncIterator[None]:
        """Holds the lock. Raises a 503 that says that nothing was done when it cannot be had in time."""
        if self._callers.get(name, 0) > self._max_waiting:
            raise _busy(f"More than {self._max_waiting} changes of this job are waiting already.")
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._callers[name] = self._callers.get(name, 0) + 1
        try:
            try:
                await asyncio.wait_for(lock.acquire(), within_s)
            except TimeoutError:
                raise _busy("An earlier change of this job has not been answered yet.") from None
            try:
                yield
            finally:
                lock.release()
        finally:
            self._callers[name] -= 1
            if not self._callers[name]:
                del self._callers[name], self._locks[name]

    def __len__(self) -> int:
        return len(self._locks)


def _busy(why: str) -> ProblemError:
    return ProblemError(
        Kind.BUSY, f"{why} This one was not applied; send it again.", headers={"Retry-After": "1"}
    )
