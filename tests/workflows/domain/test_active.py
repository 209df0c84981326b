"""When the server is asked after runs beside the loop that stay silent."""

from __future__ import annotations

import pytest

from tests.workflows.domain.states import at, definition, planned
from tests.workflows.domain.states import state as a_job
from workflows.contracts.job import BesideRun, JobState, RunState
from workflows.domain import active, job_changes, job_sources

FIRST = 12.0
"""Minutes: five of the time-out, two of four leases, five."""


def row(number: float) -> BesideRun:
    """A run beside the loop since that minute."""
    return BesideRun(
        key=f"acme/job:{number}",
        name=str(number),
        scheduled_time=at(number),
        fires_at=at(number),
        outcome="scheduled",
        seq=0,
    )


def job(*minutes: float, **fields: object) -> JobState:
    return a_job([], definition=definition(**fields), beside=[row(number) for number in minutes])


@pytest.mark.parametrize(
    ("begun", "asked", "expected"),
    [
        pytest.param([], None, None, id="nobody-is-beside"),
        pytest.param([0], None, FIRST, id="after-its-time-out-and-leases"),
        pytest.param([0, 5], None, FIRST, id="the-oldest-counts"),
        pytest.param([5], 10, 25, id="no-sooner-than-a-quarter-of-an-hour-after-the-last-question"),
        pytest.param([0], 40, 80, id="again-at-twice-its-age"),
        pytest.param([0, 38], 40, 55, id="a-younger-one-is-asked-after-for-the-first-time"),
    ],
)
def test_when_to_ask_after_silent_runs(
    begun: list[float], asked: float | None, expected: float | None
) -> None:
    asked_at = None if asked is None else at(asked)
    assert active.doubt_at(job(*begun), asked_at) == (None if expected is None else at(expected))


def test_a_run_that_may_last_for_days_is_asked_after_within_the_hour() -> None:
    days = job(0, timeout="P2D", max_duration="P3D", completion="callback")
    assert active.doubt_at(days, None) == at(60)


def test_only_those_that_are_silent_for_long_are_asked_after() -> None:
    assert active.in_doubt(job(0, 5), at(FIRST)) == [row(0)]


def test_a_run_whose_start_is_unsure_is_not_asked_after() -> None:
    """The server does not know it yet, perhaps."""
    state = job(0)
    job_changes.unsure(state, row(0), job_run(state))
    assert (active.in_doubt(state, at(99)), active.doubt_at(state, None)) == ([], None)
    assert job_changes.sure(state, row(0)) == row(0)
    assert active.in_doubt(state, at(99)) == [row(0)]


def test_a_stop_waits_until_the_start_is_sure() -> None:
    """Of this very run: an earlier one of the same occurrence has another name."""
    state = job(0)
    job_changes.unsure(state, row(0), job_run(state))
    assert not job_changes.stop_when_sure(state, row(0).model_copy(update={"name": "0/4"}), "asked")
    assert job_changes.stop_when_sure(state, row(0), "asked")
    known = job_changes.sure(state, row(0))
    assert known is not None
    assert known.stop == "asked"
    assert not job_changes.stop_when_sure(state, row(0), "asked")


def test_what_starts_a_run_that_is_not_sure_knows_that_it_is_to_be_stopped() -> None:
    state = job(0)
    run = job_run(state)
    job_changes.unsure(state, row(0), run)
    assert job_changes.stop_of_unsure(state, row(0)) is None
    job_changes.stop_when_sure(state, row(0), "asked")
    assert job_changes.stop_of_unsure(state, row(0)) == "asked"
    again = job_sources.alone_again(state, run, "asked").run
    assert again is not None
    assert (again.stop, run.stop) == ("asked", None)
    job_changes.sure(state, row(0))
    assert job_changes.stop_of_unsure(state, row(0)) is None


def test_a_run_that_is_started_again_is_the_same_and_counts_as_served() -> None:
    state = job(0)
    run = job_run(state)
    again = job_sources.alone_again(state, run)
    assert (again.run, again.cursor >= at(1)) == (run, True)


def job_run(state: JobState) -> RunState:
    aside = job_sources.alone_for(state, planned(1)[0], at(1))
    assert aside.run is not None
    job_sources.set_beside(aside.run)
    return aside.run
