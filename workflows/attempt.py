"""One attempt, seen from a workflow: its activity, what may stop it, and what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError

from workflows.contracts.attempt import NATIVE_RETRY, AttemptInput, AttemptReport, HeartbeatDetails
from workflows.contracts.base import rfc3339
from workflows.contracts.failures import ATTEMPT_FAILED
from workflows.contracts.job import FiredSignal, StopIntent
from workflows.contracts.names import ATTEMPT_ACTIVITY, DUE_QUEUE, MAIN_QUEUE
from workflows.domain import callback

HELD_LEASES = 10
"""Leases that may be lost while a run is only held; they are no reaps, but they end somewhere."""
BACKSTOP = timedelta(hours=1)


@dataclass(frozen=True)
class LostAttempt:
    """The server gave the attempt up: its holder is gone, or it was cancelled before anybody held it."""

    details: HeartbeatDetails | None
    cancelled: bool

    @property
    def fired(self) -> bool:
        """By its last holder or by one before, whose word the last one passed on."""
        return self.details is not None and (self.details.phase == "fired" or self.details.deliveries > 0)


class AttemptCall:
    """The activity of one attempt while it is scheduled, held or running."""

    def __init__(self, inp: AttemptInput, now: datetime) -> None:
        self.inp = inp
        self.scheduled_at = now
        self.lease = callback.lease(inp.definition, _time_left(inp, max(inp.fires_at, now)))
        self.fired = False
        """A worker said so when it was asked to stop."""
        self.intent = StopIntent()
        """What the holder is told when it asks."""
        self._handle: workflow.ActivityHandle[AttemptReport] = workflow.start_activity(
            ATTEMPT_ACTIVITY,
            inp,
            result_type=AttemptReport,
            task_queue=MAIN_QUEUE if inp.fires_at > now else DUE_QUEUE,
            schedule_to_close_timeout=_schedule_to_close(inp, now),
            heartbeat_timeout=self.lease,
            retry_policy=RetryPolicy(
                initial_interval=NATIVE_RETRY,
                backoff_coefficient=1.0,
                maximum_attempts=_reaps_left(inp) + 1 + HELD_LEASES,
            ),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=Priority(
                priority_key=inp.definition.priority,
                fairness_key=inp.tenant,
                fairness_weight=inp.hints.weight,
            ),
            summary=_summary(inp),
        )
        self._begun = False
        asyncio.get_running_loop().call_soon(self._begin)

    def stop(self, intent: Literal["if_held", "now"], reason: str) -> None:
        """Ask the holder to stop. Temporal delivers one bare cancel, so a later, stronger intent is
        learned by the holder's next query."""
        first = self.intent.intent == "none"
        if first or intent == "now":
            self.intent = StopIntent(intent=intent, reason=reason)
        if first and self._begun:
            self._handle.cancel()

    def _begin(self) -> None:
        """The activity's task has made its first step. A task that is cancelled before ends without one: the
        activity would be scheduled and never cancelled, and its workflow would fail."""
        self._begun = True
        if self.is_stopped:
            self._handle.cancel()

    @property
    def is_stopped(self) -> bool:
        """It was asked to stop, in whatever way."""
        return self.intent.intent != "none"

    @property
    def stop_now_reason(self) -> str | None:
        """Why the run was to stop wherever it was; None if it was not."""
        return self.intent.reason if self.intent.intent == "now" else None

    def is_for(self, asked: FiredSignal) -> bool:
        return (asked.key, asked.attempt) == (self.inp.occurrence.key, self.inp.attempt)

    def is_done(self) -> bool:
        return self._handle.done()

    async def outcome(self) -> AttemptReport | LostAttempt:
        """Wait until the attempt has come back, whatever became of it."""
        try:
            return await self._handle
        except ActivityError as failure:
            return self._classify(failure.cause)

    def _classify(self, cause: BaseException | None) -> AttemptReport | LostAttempt:
        if isinstance(cause, ApplicationError):
            if cause.type == ATTEMPT_FAILED and cause.details:
                return AttemptReport.model_validate(cause.details[0])
            return AttemptReport(  # the worker's code itself failed, which native retries did not mend
                outcome="failed",
                deliveries=self.inp.deliveries,
                reaps=self.inp.reaps,
                started_at=self.inp.first_started_at,
                lateness_ms=self.inp.first_lateness_ms,
                ended_at=workflow.now(),
                error=f"internal: {cause.message}"[:500],
                retryable=True,
            )
        if isinstance(cause, TimeoutError):
            kept = cause.last_heartbeat_details
            details = HeartbeatDetails.model_validate(kept[0]) if kept else None
            return LostAttempt(details, cancelled=False)
        if isinstance(cause, CancelledError):
            return LostAttempt(None, cancelled=True)
        raise RuntimeError(f"an attempt ended in a way nobody knows: {cause!r}")


def _reaps_left(inp: AttemptInput) -> int:
    return max(0, inp.definition.max_reaps - inp.reaps)


def _schedule_to_close(inp: AttemptInput, now: datetime) -> timedelta:
    """A backstop only; the worker itself enforces ``timeout`` and ``max_duration``."""
    leases = inp.definition.heartbeat_timeout * (_reaps_left(inp) + 1)
    return max(inp.fires_at - now, timedelta(0)) + _time_left(inp, now) + leases + BACKSTOP


def _time_left(inp: AttemptInput, at: datetime) -> timedelta:
    """What is left then of ``max_duration``, which counts from the first firing of the execution."""
    spent = at - inp.first_started_at if inp.first_started_at else timedelta(0)
    return max(inp.definition.max_duration - spent, timedelta(0))


def _summary(inp: AttemptInput) -> str:
    occurrence = inp.occurrence
    when = rfc3339(occurrence.scheduled_time)
    source = "" if occurrence.trigger == "schedule" else f", {occurrence.trigger}"
    retried = "" if inp.attempt == 1 else f", attempt {inp.attempt} at {rfc3339(inp.fires_at)}"
    return f"{when}{source}{retried}"[:200]
