"""What an attempt with a callback comes back with, from what its target said of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from workflows.contracts.attempt import AttemptReport
from workflows.contracts.callback import CallbackClaims
from workflows.contracts.definition import JobDefinition
from workflows.domain.retry import MAX_RETRY_AFTER

ACCEPTED = 202
"""The status with which the target took the run over."""
LEAST_LEASE = timedelta(seconds=3)


def lease(definition: JobDefinition, left: timedelta) -> timedelta:
    """How long nobody may say a word of a run. ``left``: of ``max_duration``, when the attempt is due.

    No longer than the attempt may last: of a silent target, the end of its lease is the first that is seen.
    """
    if definition.completion != "callback":
        return definition.heartbeat_timeout
    return min(definition.heartbeat_timeout, max(min(definition.timeout, left), LEAST_LEASE))


def no_end(within_s: float) -> str:
    """The error of an attempt whose target has used up its time, in seconds."""
    return f"the target did not report an end within {within_s:g} s"


def succeeded(claims: CallbackClaims, answer: str | None, at: datetime) -> AttemptReport:
    return _report(claims, at, outcome="succeeded", answer=answer)


def failed(
    claims: CallbackClaims, at: datetime, *, error: str, retryable: bool, retry_after_s: float | None
) -> AttemptReport:
    longest = MAX_RETRY_AFTER.total_seconds()
    wait = None if retry_after_s is None or not retryable else min(retry_after_s, longest)
    return _report(claims, at, outcome="failed", error=error, retryable=retryable, retry_after_s=wait)


def timed_out(claims: CallbackClaims, at: datetime) -> AttemptReport:
    """``max_duration`` ends the execution, ``timeout`` the attempt only."""
    final = claims.ends_by == "max_duration"
    return _report(
        claims,
        at,
        outcome="timed_out",
        error=no_end(claims.timeout_s),
        retryable=not final,
        reason="max_duration" if final else None,
    )


def cancelled(claims: CallbackClaims, at: datetime, reason: str) -> AttemptReport:
    return _report(claims, at, outcome="cancelled", reason=reason)


def is_over(claims: CallbackClaims, now: datetime) -> bool:
    """Its time is used up, whatever the target may say."""
    return now >= claims.ends_at


def is_repeat(claims: CallbackClaims, ended: AttemptReport, said: AttemptReport) -> bool:
    """Whether the attempt ended by the very report that is given again, which then succeeds again."""
    return ended.deliveries == claims.delivery and _said(ended) == _said(said)


def _said(report: AttemptReport) -> tuple[object, ...]:
    """What the target decides of it."""
    return (report.outcome, report.answer, report.error, report.retryable, report.retry_after_s)


def _report(claims: CallbackClaims, at: datetime, **what: Any) -> AttemptReport:
    beat = claims.beat
    return AttemptReport(
        fired=True,
        deliveries=beat.deliveries,
        reaps=beat.reaps,
        started_at=beat.started_at,
        fired_at=claims.sent_at,
        lateness_ms=beat.lateness_ms,
        ended_at=max(at, claims.sent_at),
        status_code=ACCEPTED,
        worker=beat.worker,
        tzdata=claims.tzdata,
        **what,
    )
