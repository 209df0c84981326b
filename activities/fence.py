"""The fence: the awaited heartbeat that lets a held run fire (docs/decisions/0002).

``activity.heartbeat`` only queues; this call returns when the server has taken the beat, so a run
whose activity was cancelled, or given to another worker, learns it before it writes a request.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from enum import Enum

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.service import RPCError, RPCStatusCode

from activities.clock import Clock
from workflows.contracts.attempt import HeartbeatDetails

CALL_TIMEOUT = timedelta(seconds=1)
MIN_SPREAD = timedelta(milliseconds=500)
IN_FLIGHT = 16
_GOLDEN = 0.6180339887498949


class Passed(Enum):
    YES = "yes"
    CANCELLED = "cancelled"
    """A stop reached the server first."""
    GONE = "gone"
    """The attempt belongs to another worker now, or to nobody."""
    UNKNOWN = "unknown"
    """The server did not answer: ask again and be late."""


class Fences:
    """All fences of a process: at most 16 in flight, spread before the instant by what they cost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places = asyncio.Semaphore(IN_FLIGHT)
        self._cost = 0.005
        self._turn = 0.0
        self.held = 0
        """Runs that will want a fence; kept by the holders."""

    def spread(self, hold: timedelta) -> timedelta:
        """How long before its instant a run that is held for ``hold`` may be fenced."""
        wanted = timedelta(seconds=self.held * self._cost)
        return min(max(wanted, MIN_SPREAD), hold / 2)

    def at(self, fires_at: datetime, hold: timedelta) -> datetime:
        """An instant in the spread before ``fires_at``; successive calls fill it evenly."""
        self._turn = (self._turn + _GOLDEN) % 1.0
        return fires_at - self.spread(hold) * (0.1 + 0.9 * self._turn)

    async def pass_with(self, details: HeartbeatDetails, *, after_beats: bool = True) -> Passed:
        """Beat with ``details`` and wait for the server's word, at most a second.

        ``after_beats``: this holder has beaten before by way of core, which sends one at once and keeps
        the next for a while. What it keeps is replaced then, lest it say less after the fence. Without
        any, core's own timer of the lease waits for the next regular beat, and a beat is saved.
        """
        async with self._places:
            begun = self._clock.elapsed()
            if after_beats:
                activity.heartbeat(details)
            try:
                handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
                await asyncio.wait_for(
                    handle.heartbeat(details, rpc_timeout=CALL_TIMEOUT), CALL_TIMEOUT.total_seconds() * 1.5
                )
            except AsyncActivityCancelledError:
                return Passed.CANCELLED
            except RPCError as error:
                return Passed.GONE if error.status == RPCStatusCode.NOT_FOUND else Passed.UNKNOWN
            except TimeoutError:
                return Passed.UNKNOWN
            self._cost += 0.1 * (min(self._clock.elapsed() - begun, 1.0) - self._cost)
        if after_beats:  # core's own timer of the lease is reset only by such a one
            activity.heartbeat(details)
        return Passed.YES
