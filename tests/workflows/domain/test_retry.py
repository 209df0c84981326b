"""Backoff and the end of retries: docs/delivery.md, Retries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts.definition import JobDefinition, Retry
from workflows.domain.retry import (
    MAX_ATTEMPTS,
    MAX_BACKOFF,
    MAX_DURATION,
    NOT_RETRYABLE,
    DeadLetter,
    RetryAt,
    after_failure,
    backoff,
)

NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)
PLAIN = Retry(jitter=0)

RETRIES = st.builds(
    Retry,
    max_attempts=st.integers(1, 100),
    initial_interval=st.timedeltas(timedelta(0), timedelta.max),
    factor=st.floats(1, 100),
    max_interval=st.timedeltas(timedelta(0), timedelta.max),
    jitter=st.floats(0, 1),
)
RETRY_AFTER = st.none() | st.floats(allow_nan=True, allow_infinity=True)


def definition(**fields: object) -> JobDefinition:
    return JobDefinition.model_validate(
        {"schedule": {"every": "PT1M"}, "target": {"url": "https://example.com"}, **fields}
    )


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (10_000, 600)]
)
def test_default_intervals_double_up_to_ten_minutes(attempt: int, seconds: float) -> None:
    assert backoff(PLAIN, "k:1", attempt) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("retry_after_s", "seconds"),
    [
        pytest.param(None, 10, id="absent"),
        pytest.param(5.0, 10, id="shorter-than-the-backoff"),
        pytest.param(60.0, 60, id="longer"),
        pytest.param(9999999999.0, 3600, id="absurd-is-capped-at-an-hour"),
        pytest.param(float("inf"), 10, id="infinite"),
        pytest.param(float("nan"), 10, id="not-a-number"),
        pytest.param(-1.0, 10, id="negative"),
    ],
)
def test_retry_after_raises_the_delay(retry_after_s: float | None, seconds: float) -> None:
    assert backoff(PLAIN, "k:1", 1, retry_after_s) == timedelta(seconds=seconds)


def test_a_long_backoff_is_not_capped_at_the_hour_of_retry_after() -> None:
    retry = Retry(initial_interval=timedelta(hours=5), max_interval=timedelta(hours=9), jitter=0)
    assert backoff(retry, "k:1", 1, 60.0) == timedelta(hours=5)


@given(RETRIES, st.text(max_size=20), st.integers(1, 10**9), RETRY_AFTER)
def test_backoff_is_bounded_and_stable(
    retry: Retry, execution_id: str, attempt: int, retry_after_s: float | None
) -> None:
    """Never negative, never an overflow, within the jitter's band, and the same every time."""
    wait = backoff(retry, execution_id, attempt, retry_after_s)
    assert wait == backoff(retry, execution_id, attempt, retry_after_s)
    millisecond = timedelta(milliseconds=1)
    assert timedelta(0) <= wait <= MAX_BACKOFF
    most = retry.max_interval.total_seconds() * (1 + retry.jitter)
    assert wait.total_seconds() <= max(most, 3600) * (1 + 1e-9) + 0.001
    if retry_after_s is not None and 0 < retry_after_s <= 3600:
        assert wait >= timedelta(seconds=retry_after_s) - millisecond


@given(RETRIES, st.text(max_size=20), st.integers(1, 60))
def test_without_jitter_waits_never_shrink(retry: Retry, execution_id: str, attempt: int) -> None:
    steady = retry.model_copy(update={"jitter": 0.0})
    assert backoff(steady, execution_id, attempt) <= backoff(steady, execution_id, attempt + 1)


def test_jitter_spreads_executions_over_its_whole_band() -> None:
    """Jobs that failed together do not come back together."""
    waits = [backoff(Retry(), f"acme/j{i}:2026-12-01T09:00:00Z:1", 1).total_seconds() for i in range(2000)]
    assert 8 <= min(waits) < 8.05
    assert 11.95 < max(waits) <= 12
    assert sum(waits) / len(waits) == pytest.approx(10, abs=0.1)


def test_jitter_is_a_constant_of_the_execution_id() -> None:
    """A recorded value: a change here would move retries of histories that already exist."""
    assert backoff(Retry(), "acme/daily:2026-12-01T09:00:00Z:1", 1) == timedelta(seconds=9.511)


def failed(job: JobDefinition, **changes: object) -> RetryAt | DeadLetter:
    report: dict[str, object] = {
        "attempt": 1,
        "retryable": True,
        "reason": None,
        "now": NOW,
        "started_at": NOW - timedelta(seconds=1),
        "retry_after_s": None,
        "execution_id": "acme/daily:2026-12-01T09:00:00Z:1",
    }
    return after_failure(job, **{**report, **changes})  # type: ignore[arg-type]


STEADY = {"retry": {"jitter": 0}}


@pytest.mark.parametrize(
    ("fields", "report", "expected"),
    [
        pytest.param(STEADY, {}, RetryAt(NOW + timedelta(seconds=10)), id="retried"),
        pytest.param(STEADY, {"attempt": 4}, RetryAt(NOW + timedelta(seconds=80)), id="last-retry"),
        pytest.param(STEADY, {"attempt": 5}, DeadLetter(MAX_ATTEMPTS), id="attempts-used"),
        pytest.param({"retry": {"max_attempts": 1}}, {}, DeadLetter(MAX_ATTEMPTS), id="no-retries"),
        pytest.param(
            STEADY,
            {"attempt": 6, "first_attempt": 6},
            RetryAt(NOW + timedelta(seconds=10)),
            id="redrive-starts-over",
        ),
        pytest.param(
            STEADY, {"attempt": 10, "first_attempt": 6}, DeadLetter(MAX_ATTEMPTS), id="redrive-used-too"
        ),
        pytest.param(STEADY, {"retryable": False}, DeadLetter(NOT_RETRYABLE), id="final"),
        pytest.param(STEADY, {"reason": "leases_lost"}, DeadLetter("leases_lost"), id="ended-for-a-reason"),
        pytest.param(
            {**STEADY, "max_duration": "PT11S"}, {}, DeadLetter(MAX_DURATION), id="next-at-the-very-limit"
        ),
        pytest.param(
            {**STEADY, "max_duration": "PT12S"}, {}, RetryAt(NOW + timedelta(seconds=10)), id="just-before"
        ),
        pytest.param(
            {**STEADY, "max_duration": "PT1S"},
            {"started_at": None},
            RetryAt(NOW + timedelta(seconds=10)),
            id="never-fired",
        ),
        pytest.param(
            {**STEADY, "max_duration": "PT30M"},
            {"retry_after_s": 9999999999.0},
            DeadLetter(MAX_DURATION),
            id="asked-to-wait-beyond-the-duration",
        ),
    ],
)
def test_what_follows_a_failure(
    fields: dict[str, object], report: dict[str, object], expected: RetryAt | DeadLetter
) -> None:
    assert failed(definition(**fields), **report) == expected


@given(RETRIES, st.integers(1, 100), st.timedeltas(timedelta(0), timedelta(days=31)), RETRY_AFTER)
def test_retries_end(retry: Retry, attempt: int, age: timedelta, retry_after_s: float | None) -> None:
    """A retry is never in the past, never beyond the duration, never past the attempts."""
    job = definition().model_copy(update={"retry": retry})
    outcome = failed(job, attempt=attempt, started_at=NOW - age, retry_after_s=retry_after_s)
    if isinstance(outcome, RetryAt):
        assert attempt < retry.max_attempts
        assert NOW <= outcome.at < NOW - age + job.max_duration
