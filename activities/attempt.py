"""The attempt activity: takes a run from the server, and answers for it whatever happens.

What a worker knows becomes a result. Only its own death is left to the native retry policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import activity

from activities.callback import Callbacks
from activities.clock import Clock, ServerOffset
from activities.fence import Fences
from activities.hold import Hold, Sender
from activities.overrun import Tell, watch
from activities.records import Recorder
from activities.stop import ask_to_stop
from activities.turnstile import Turnstile
from infra.telemetry import Telemetry
from infra.temporal.attempt_failure import attempt_failure
from workflows.contracts.attempt import AttemptInput, AttemptReport
from workflows.contracts.names import ATTEMPT_ACTIVITY
from workflows.domain import history

STORE_WAIT = timedelta(milliseconds=50)
"""How long a result waits for its row; the workflow keeps the row otherwise."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class ReturnRate:
    """Bounds how many runs a second are returned from the turnstile, so that a backlog is not churned."""

    def __init__(self, per_second: float = 50.0) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Whether one may be returned at ``now``, seconds on any steady clock."""
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True)
class Places:
    """What all attempts of a worker process share."""

    sender: Sender
    turnstile: Turnstile
    returns: ReturnRate
    fences: Fences
    clock: Clock
    offset: ServerOffset
    recorder: Recorder
    telemetry: Telemetry
    worker: str
    """This process, as histories and the Temporal UI name it."""
    hold_limit: timedelta
    tzdata: str
    callbacks: Callbacks | None = None
    """None: there is no public URL, and jobs with callbacks fail."""
    tell_incident: Tell | None = None
    worker_commands: bool = True
    """The server tells this process at once that a run is to stop."""


class Attempts:
    """The attempt activity of one worker process, and its graceful end."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._holds: set[Hold] = set()
        self._stops_at: datetime | None = None

    @property
    def active(self) -> int:
        return len(self._holds)

    @activity.defn(name=ATTEMPT_ACTIVITY)
    async def attempt(self, inp: AttemptInput) -> AttemptReport:
        """Hold until ``fires_at``, fence, wait at the turnstile, fire, keep the lease, report."""
        places, info = self._places, activity.info()
        places.offset.sample(info.started_time)
        if (offset := places.offset.seconds) is not None:
            places.telemetry.clock_offset(offset)
        hold = Hold(inp, info, places)
        self._holds.add(hold)
        watching: asyncio.Task[None] | None = None
        if inp.overrun is not None and places.tell_incident is not None:
            watching = asyncio.create_task(
                watch(
                    inp.overrun,
                    inp,
                    places.clock,
                    places.telemetry,
                    places.tell_incident,
                    started_at=lambda: hold.started_at,
                )
            )
        try:
            if self._stops_at is not None:
                hold.worker_stops(self._stops_at)
            report = await self._answer_for(hold)
        finally:
            self._holds.discard(hold)
            if watching is not None:
                watching.cancel()
        if hold.handed_over is not None and places.callbacks is not None:
            places.recorder.offer(inp.records)
            await _undisturbed(places.callbacks.hand_over(hold.handed_over, places.fences))
            places.telemetry.attempt_ended("handed_over")
            activity.raise_complete_async()
        report = await _undisturbed(self._told(hold, report))
        places.telemetry.attempt_ended(report.outcome, report.reason)
        if report.outcome in ("failed", "timed_out"):
            raise attempt_failure(report) from None
        return report

    async def _answer_for(self, hold: Hold) -> AttemptReport:
        """Wait for the run; a cancel is one bare event and must not break off what has fired."""
        hold.start()
        asking: asyncio.Task[None] | None = None
        try:
            while not hold.ended.done():
                try:
                    await asyncio.wait({hold.ended})
                except asyncio.CancelledError:
                    details = activity.cancellation_details()
                    if details is not None and details.worker_shutdown:
                        hold.give_back("worker_stopping")
                    elif details is not None and (details.not_found or details.timed_out):
                        hold.lose()
                    elif not hold.fired:
                        hold.cancel("stopped")
                    elif asking is None:
                        asking = asyncio.create_task(ask_to_stop(hold))
            return hold.ended.result()
        finally:
            if asking is not None:
                asking.cancel()
            hold.close()

    async def _told(self, hold: Hold, report: AttemptReport) -> AttemptReport:
        """Hand the rows to the database; nothing waits for it longer than a moment.

        The end of a run that may be another worker's is not written: if the report is taken all the same,
        the job keeps the row, and if not, nothing was said over a newer delivery.
        """
        inp = hold.inp
        records = list(inp.records)
        has_row = report.outcome in ("succeeded", "failed", "timed_out") or (
            report.outcome == "cancelled" and report.fired
        )
        written = has_row and await hold.may_record_end()
        if written:
            records.append(history.attempt_record(inp, report, history.verdict(inp, report)))
        if not records:
            return report.model_copy(update={"stored": not has_row})
        stored = await self._places.recorder.store(records, STORE_WAIT)
        return report.model_copy(
            update={
                "stored": (stored and written) or not has_row,
                "carried_stored": stored and bool(inp.records),
            }
        )

    # -- the end of the process --------------------------------------------------------------------

    async def stop(self, grace: timedelta, is_idle: Callable[[], bool] = lambda: False) -> None:
        """Go on with what fires or ends within ``grace``, give the rest back; bounded by ``grace``."""
        clock = self._places.clock
        self._stops_at = clock.now() + grace
        for hold in list(self._holds):
            hold.worker_stops(self._stops_at)
        until = clock.elapsed() + grace.total_seconds()
        while self._holds and clock.elapsed() < until and not is_idle():
            await clock.sleep(0.05)
        for hold in list(self._holds):
            hold.give_back("worker_stopping")


async def _undisturbed(work: Coroutine[Any, Any, Result]) -> Result:
    """``work`` to its end, whatever is cancelled meanwhile: a run that has ended must be reported so."""
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()
