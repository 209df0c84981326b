"""When a run is handed to a worker: early enough for a burst, never so late that a timer decides."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workflows.domain.states import NOON
from workflows.domain.look_ahead import (
    HOLD_LIMIT,
    LONGEST_SLEEP,
    MIN_LEAD,
    TIMER_FLOOR,
    lead,
    longest_sleep,
    wake_at,
)

SECOND = timedelta(seconds=1)
JOBS = 3000


@given(st.text(max_size=63), st.text(max_size=130), st.integers(3, 600))
def test_a_lead_is_stable_and_within_the_hold_limit(tenant: str, ref: str, limit_s: int) -> None:
    limit = limit_s * SECOND
    assert MIN_LEAD <= lead(tenant, ref, limit) < limit
    assert lead(tenant, ref, limit) == lead(tenant, ref, limit)


def test_a_lead_is_the_same_in_every_release() -> None:
    """Another hash would move every sleeping job at an upgrade."""
    assert lead("acme", "report") == timedelta(seconds=7, microseconds=131420)


def test_jobs_that_share_an_instant_wake_spread_evenly() -> None:
    tenths = [0] * 10
    for number in range(JOBS):
        tenths[int((lead("acme", f"job-{number}") - MIN_LEAD) / (HOLD_LIMIT - MIN_LEAD) * 10)] += 1
    assert all(0.8 * JOBS / 10 < tenth < 1.2 * JOBS / 10 for tenth in tenths), tenths


@pytest.mark.parametrize("limit", [timedelta(0), SECOND, MIN_LEAD], ids=str)
def test_a_limit_below_the_least_lead_still_leaves_a_lead(limit: timedelta) -> None:
    assert lead("acme", "report", limit) == MIN_LEAD


@given(st.integers(-60_000, 10_000_000), st.integers(0, 2**32))
def test_a_run_is_held_no_longer_than_the_limit_and_no_timer_is_shorter_than_a_second(
    ahead_ms: int, seed: int
) -> None:
    fires_at = NOON + timedelta(milliseconds=ahead_ms)
    lead_time = lead("acme", str(seed))
    wake = wake_at(fires_at, NOON, lead_time, HOLD_LIMIT)
    if wake is None:
        assert fires_at - NOON <= HOLD_LIMIT + TIMER_FLOOR
    else:
        assert wake - NOON > TIMER_FLOOR
        assert MIN_LEAD <= fires_at - wake <= HOLD_LIMIT


def test_zone_bound_jobs_plan_again_within_a_day_and_not_all_at_once() -> None:
    sleeps = {longest_sleep(True, "acme", f"job-{number}") for number in range(100)}
    assert len(sleeps) == 100
    assert timedelta(hours=18) <= min(sleeps)
    assert max(sleeps) < timedelta(hours=24)
    assert longest_sleep(False, "acme", "report") == LONGEST_SLEEP
