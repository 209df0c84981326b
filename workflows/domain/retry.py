"""When a failed attempt is tried again, and when that ends: docs/delivery.md, Retries.

Runs inside workflow code: no clock, no randomness, and whole milliseconds, so that a replay on
another machine cannot differ by a last bit.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from workflows.contracts.definition import JobDefinition, Retry

MAX_RETRY_AFTER = timedelta(hours=1)
"""How far a target may put its next attempt off."""
MAX_BACKOFF = timedelta(days=365)
"""Keeps instants representable whatever a definition says."""

NOT_RETRYABLE = "not_retryable"
MAX_ATTEMPTS = "max_attempts"
MAX_DURATION = "max_duration"


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Schedule the next attempt, due at ``at``."""

    at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """No further attempt; ``reason`` is what the dead letter says."""

    reason: str


def backoff(retry: Retry, execution_id: str, attempt: int, retry_after_s: float | None = None) -> timedelta:
    """The wait after ``attempt`` (from 1) has failed.

    ``initial_interval * factor ** (attempt - 1)``, at most ``max_interval``, times a factor in
    [1 - jitter, 1 + jitter] from a stable hash of the execution id. A ``Retry-After`` (seconds)
    raises it, by itself to at most an hour; one that is negative or not finite is ignored.
    """
    seconds = _interval_s(retry, attempt) * (1 + retry.jitter * _spread(execution_id))
    if retry_after_s is not None and math.isfinite(retry_after_s) and retry_after_s > 0:
        seconds = max(seconds, min(retry_after_s, MAX_RETRY_AFTER.total_seconds()))
    return timedelta(milliseconds=round(min(seconds, MAX_BACKOFF.total_seconds()) * 1000))


def after_failure(
    definition: JobDefinition,
    *,
    attempt: int,
    retryable: bool,
    reason: str | None,
    now: datetime,
    started_at: datetime | None,
    retry_after_s: float | None,
    execution_id: str,
    first_attempt: int = 1,
) -> RetryAt | DeadLetter:
    """What follows a failed attempt.

    ``reason`` is the report's: an end that allows no retry whatever is left (``max_duration``,
    ``leases_lost``). ``started_at`` is the first firing of the execution, from which
    ``max_duration`` counts (None: nothing has been written to the target yet, so nothing to count).
    ``first_attempt`` is the attempt that a redrive began with: attempts and backoff count from it.
    """
    if reason is not None:
        return DeadLetter(reason)
    if not retryable:
        return DeadLetter(NOT_RETRYABLE)
    used = max(1, attempt - first_attempt + 1)
    if used >= definition.retry.max_attempts:
        return DeadLetter(MAX_ATTEMPTS)
    at = now + backoff(definition.retry, execution_id, used, retry_after_s)
    # An attempt that begins at the very limit would have no time to run.
    if started_at is not None and at - started_at >= definition.max_duration:
        return DeadLetter(MAX_DURATION)
    return RetryAt(at)


def _interval_s(retry: Retry, attempt: int) -> float:
    initial, limit = retry.initial_interval.total_seconds(), retry.max_interval.total_seconds()
    if initial <= 0:
        return 0.0
    try:
        return min(initial * retry.factor ** (attempt - 1), limit)
    except OverflowError:
        return limit


def _spread(execution_id: str) -> float:
    """A stable number in [-1, 1]."""
    digest = hashlib.blake2b(execution_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / (2**64 - 1) * 2 - 1
