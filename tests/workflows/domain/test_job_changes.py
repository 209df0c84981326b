"""What people ask of a job: an edit never fires for the past, a pause is counted, a request is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.domain.states import (
    NOON,
    again,
    at,
    begun,
    begun_by_hand,
    comes_back,
    definition,
    planned,
    report,
    rows,
    state,
    told,
)
from workflows.contracts.attempt import HeartbeatDetails
from workflows.contracts.job import JobState, ManualRun, Standing, StopIntent
from workflows.contracts.planning import Plan, Stretch
from workflows.contracts.records import Pause
from workflows.contracts.schedule import Schedule
from workflows.domain import job_changes, job_sources, job_state, planning

NO_STOP = StopIntent()
IF_HELD = StopIntent(intent="if_held", reason="paused")
NOW = StopIntent(intent="now", reason="deleted")
HOURLY: dict[str, Any] = {"schedule": {"every": "PT1H", "anchor": NOON.isoformat()}}


def details(phase: str, **fields: Any) -> HeartbeatDetails:
    return HeartbeatDetails.model_validate(
        {"native_attempt": 1, "phase": phase, "deliveries": 0, "reaps": 0, "at": at(1), **fields}
    )


# -- edits -----------------------------------------------------------------------------------------


def test_a_new_timing_never_fires_for_the_past_and_says_what_it_left_out() -> None:
    job = state((1, 2, 3))
    job_changes.edit(job, definition(**HOURLY), at(2.5), calling=False)
    assert (told(job), job.cursor, job.plan) == ([("missed", "edited", 2)], at(2.5), [])


def test_an_edit_of_anything_else_leaves_what_is_due_to_run() -> None:
    job = state((1, 2, 3), completed_at=at(0))
    job_changes.edit(job, definition(description="other"), at(2.5), calling=False)
    assert (told(job), job.cursor, job.revision, job.completed_at) == ([], at(0), 2, None)


def test_an_occurrence_that_its_spread_moves_over_the_edit_is_not_lost() -> None:
    """Its nominal instant lies before the new cursor, its firing after: no plan would name it again."""
    job = state((1, 2), spread=0.5)
    job_changes.edit(job, definition(**HOURLY), at(1.2), calling=False)
    assert told(job) == [("missed", "edited", 1)]


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_run_in_flight_at_an_edit_counts_for_max_runs(outcome: str) -> None:
    job = state(definition=definition(max_runs=5))
    begun(job)
    job_changes.edit(job, definition(**HOURLY, max_runs=5), at(1.2), calling=True)
    comes_back(job, report(outcome, fired=1, ended=1.3, stored=True, retryable=False))
    assert (job.scheduled_runs, job.stats.runs, told(job), job.cursor) == (1, 1, [], at(1.2))


def test_a_due_run_that_an_edit_stopped_before_it_fired_is_recorded_and_not_counted() -> None:
    job = state(definition=definition(max_runs=5))
    run, inp = begun(job)
    job_changes.edit(job, definition(**HOURLY, max_runs=5), at(1.01), calling=True)
    job_state.stopped_unfired(job, run, inp, IF_HELD, at(1.02))
    assert (job.run, job.scheduled_runs, told(job)) == (None, 0, [("missed", "edited", 1)])


@pytest.mark.parametrize(
    ("source", "as_of_0_4", "stays"),
    [
        pytest.param("manual", True, True, id="asked for"),
        pytest.param("manual", False, False, id="asked for, begun by 0.3.0"),
        pytest.param("schedule", True, False, id="an occurrence"),
    ],
)
def test_a_new_timing_decides_anew_only_about_occurrences(source: str, as_of_0_4: bool, stays: bool) -> None:
    """A run that somebody asked for, and that waits for its group, has nothing to do with the timing."""
    job = state((1, 5), as_of_0_4=as_of_0_4)
    if source == "manual":
        begun_by_hand(job, 1)
    else:
        begun(job)
    assert job.run is not None
    job.run.group_since = at(1)
    job_changes.edit(job, definition(**HOURLY), at(2), calling=False)
    assert (job.run is not None) is stays
    assert [waiting.request for waiting in job.triggers] == (
        ["now"] if source == "manual" and not stays else []
    )


@pytest.mark.parametrize("calling", [True, False], ids=["held", "asleep"])
def test_an_edit_of_a_run_that_is_not_due_records_nothing(calling: bool) -> None:
    job = state()
    run, inp = begun(job)
    job_changes.edit(job, definition(**HOURLY), at(0.5), calling=calling)
    if calling:
        job_state.stopped_unfired(job, run, inp, IF_HELD, at(0.5))
    assert (job.run, told(job), job.scheduled_runs, job.cursor) == (None, [], 0, at(0.5))


def test_what_is_being_started_beside_the_loop_is_not_left_out() -> None:
    """An edit may come while its workflow is started: it runs, and is still in the plan."""
    job = state((1, 2, 3), definition=definition(concurrency={"policy": "allow"}))
    run = job_sources.begin_planned(job_sources.alone(job), job.plan[0], at(1))
    job.beside = [job_sources.beside_row(job, run)]
    job_changes.edit(job, definition(**HOURLY), at(2.5), calling=False)
    assert told(job) == [("missed", "edited", 1)]


def test_what_fell_due_behind_the_plan_is_left_to_the_planner_to_count() -> None:
    """A run lasted longer than the plan reaches; the run itself is not left out."""
    job = state((1, 2, 3))
    begun(job)
    job_changes.edit(job, definition(**HOURLY), at(9.5), calling=True)
    assert told(job) == [("missed", "edited", 2)]
    adopted(job, 9.6)
    assert [(row.count, row.last_scheduled_time) for row in rows(job)] == [(8, at(9))]
    assert (job.left_behind, job.stats.missed) == ([], 8)


@pytest.mark.parametrize("resumed", [True, False])
def test_what_a_pause_left_out_before_an_edit_is_counted_as_paused(resumed: bool) -> None:
    job = state((), pause=Pause(since=at(0), reason="", by="ada"))
    if resumed:
        job_changes.end_pause(job, at(5))
    job_changes.edit(job, definition(**HOURLY), at(7.5), calling=False)
    adopted(job, 8)
    behind = [("skipped", "paused", 5), ("missed", "edited", 2)]
    assert told(job) == (behind if resumed else [("skipped", "paused", 7)])


@pytest.mark.parametrize("fields", [{"max_runs": 3}, {"ends_at": at(3).isoformat()}], ids=str)
def test_an_edit_of_a_completed_job_leaves_nothing_behind(fields: dict[str, Any]) -> None:
    job = state((), definition=definition(**fields), cursor=3, scheduled_runs=3, plan_exhausted=True)
    job_changes.edit(job, definition(**HOURLY), at(9), calling=False)
    assert job.left_behind == []


def test_an_edit_that_mends_a_schedule_which_broke_is_planned() -> None:
    """What fell due by the old one cannot be told any more."""
    broken = {"cron": "* * * * *", "timezone": "Mars/Olympus"}
    job = state((), definition=definition().model_copy(update={"schedule": Schedule.model_validate(broken)}))
    job_changes.edit(job, definition(**HOURLY), at(9), calling=False)
    adopted(job, 9)
    assert (job.left_behind, told(job), job.plan[0].scheduled_time) == ([], [], at(60))


SECOND = 1 / 60


def once(minute: float, **fields: Any) -> dict[str, Any]:
    return {"schedule": {"at": at(minute).isoformat()}, **fields}


@pytest.mark.parametrize(
    ("job", "moved_to", "edited_at", "runs"),
    [
        pytest.param(state(()), 5, 5.5, True, id="another schedule"),
        pytest.param(state((), cursor=5.2), 5, 5.5, True, id="before the last edit"),
        pytest.param(state((), cursor=5, served=[at(5)]), 5, 5.5, False, id="ran already"),
        pytest.param(state((), definition=definition(**once(5))), 5, 5.5, False, id="the same instant"),
        pytest.param(state(()), 5, 6 + SECOND, False, id="further back"),
    ],
)
def test_a_job_becomes_a_one_off_of_the_last_minute(
    job: JobState, moved_to: float, edited_at: float, runs: bool
) -> None:
    """As one that is created so: it runs at once. It is no schedule of the past, it was asked for now."""
    wanted = definition(**once(moved_to, description="changed", ends_at=at(90).isoformat()))
    job_changes.edit(job, wanted, at(edited_at), calling=False, reaches_back=True)
    adopted(job, edited_at)
    assert [one.scheduled_time for one in job.plan] == ([at(moved_to)] if runs else [])
    assert ("missed", "edited", 1) not in told(job) or not runs


@pytest.mark.parametrize(
    ("minute", "row"),
    [
        pytest.param(5, ("missed", "edited", 1), id="later"),
        pytest.param(4.6, ("skipped", "overlap", 1), id="earlier"),
    ],
)
def test_what_a_run_under_way_leaves_no_room_for_is_recorded(
    minute: float, row: tuple[str, str, int]
) -> None:
    """The end of a later run of the schedule goes past it; under an earlier one it is an overlap as any."""
    job = state((minute,))
    begun(job)
    job_changes.edit(job, definition(**once(4.8)), at(5.1), calling=True, reaches_back=True)
    comes_back(job, report("succeeded", fired=minute, ended=5.2, stored=True))
    adopted(job, 5.3)
    assert row in told(job)
    assert (job.plan, job.plan_exhausted) == ([], True)


@pytest.mark.parametrize("moved_to", [0.4, 0.8], ids=["has-passed", "is-to-come"])
def test_a_held_run_that_an_edit_could_not_stop_does_not_go_past_the_new_one(moved_to: float) -> None:
    """Its worker is dead, and may have sent it: it is under way for as long as its lease."""
    job = state()
    run, inp = begun(job)
    job_changes.edit(job, definition(**once(moved_to)), at(0.5), calling=True, reaches_back=True)
    left = details("fired", deliveries=1)
    job_state.lease_lost(job, run, inp, left=left, stopped=None, now=at(1.5))
    comes_back(job, report("succeeded", fired=1, ended=1.6, stored=True))
    adopted(job, 1.6)
    assert [one.scheduled_time for one in job.plan] == [at(moved_to)]
    job_state.served(job, begun(job)[0])
    assert (job.plan, job.cursor, job.scheduled_runs) == ([], at(moved_to), 2)


def test_an_edit_of_before_reaches_back_to_nothing() -> None:
    """Histories of 0.4.0 go on as they were."""
    job = state(())
    job_changes.edit(job, definition(**once(5)), at(5.5), calling=False)
    adopted(job, 5.5)
    assert (job.plan, job.plan_exhausted) == ([], True)


def adopted(job: JobState, minute: float) -> None:
    job_state.adopt(job, planning.plan(job_state.plan_input(job, at(minute))), at(minute))


# -- pauses ----------------------------------------------------------------------------------------


def test_the_end_of_a_pause_counts_what_passed_and_runs_none_of_it() -> None:
    job = state(pause=Pause(since=at(0.5)))
    job_changes.end_pause(job, at(10.5))
    asked = job_state.plan_input(job, at(10.6))
    assert (job.plan, asked.passed_until, asked.after) == ([], at(10.5), at(0))
    passed = Stretch(count=10, first=at(1), last=at(10))
    job_state.adopt(job, Plan(occurrences=planned(11), passed=passed, cursor=at(10)), at(10.6))
    assert told(job) == [("skipped", "paused", 10)]
    assert job.stats.skipped == 10


@pytest.mark.parametrize(
    ("ended_at", "skipped", "first"),
    [
        pytest.param(5, 4, 5, id="by itself"),
        pytest.param(5.5, 4, 5, id="by itself, and resumed before the job has seen it"),
        pytest.param(3.5, 3, 4, id="by a resume before its end"),
    ],
)
def test_a_pause_is_over_at_its_end_and_what_is_due_then_runs(
    ended_at: float, skipped: int, first: float
) -> None:
    """No worker may have been there at that instant: what falls due behind it is late, and not paused."""
    job = state(pause=Pause(since=at(0.5), until=at(5)), definition=definition(catch_up={"policy": "all"}))
    job_changes.end_pause(job, at(ended_at))
    adopted(job, 6)
    assert told(job) == [("skipped", "paused", skipped)]
    assert job.plan[0].scheduled_time == at(first)


def test_a_failure_during_a_pause_is_not_tried_again() -> None:
    job = state()
    begun(job)
    job.pause = Pause(since=at(1.1))
    comes_back(job, report("failed", fired=1, ended=1.2))
    assert job.run is None
    assert [outcome for outcome, _, _ in told(job)] == ["retrying", "dead_lettered"]
    assert rows(job)[1].seq > rows(job)[0].seq


def test_a_pause_that_ran_out_during_the_attempt_leaves_its_retry() -> None:
    job = state()
    begun(job)
    job.pause = Pause(since=at(1.1), until=at(1.15))
    comes_back(job, report("failed", fired=1, ended=1.2))
    kept, _ = again(job)
    assert (kept.attempt, told(job)) == (2, [("retrying", None, 1)])


# -- manual runs -----------------------------------------------------------------------------------


def test_the_last_hundred_requests_are_remembered() -> None:
    job = state()
    for number in range(150):
        job_changes.remember_request(job, ManualRun(request=f"r{number}", at=at(0)))
    assert [one.id for one in job.requests] == [f"r{number}" for number in range(50, 150)]
    assert job.requests[0].key == "acme/report:manual-r50"


def test_what_a_manual_run_would_have_to_run_beside() -> None:
    job = state()
    assert job_changes.active_key(job, at(0.5)) is None
    run, _ = begun(job)
    assert job_changes.active_key(job, at(0.9)) is None, "a run that is only held"
    assert job_changes.active_key(job, at(1)) == run.occurrence.key, "due: it may have fired"
    comes_back(job, report("failed", fired=1, ended=1.1))
    assert job_changes.active_key(job, at(1.15)) == run.occurrence.key, "waiting for its retry"


# -- runs beside the loop --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calling", "attempt", "reason"),
    [
        pytest.param(True, 2, "edited", id="a retry that a worker holds"),
        pytest.param(False, 2, None, id="a retry that sleeps"),
        pytest.param(True, 1, None, id="a first attempt"),
    ],
)
def test_a_retry_beside_the_loop_is_sent_under_the_newest_definition(
    calling: bool, attempt: int, reason: str | None
) -> None:
    job = state()
    run, _ = begun_by_hand(job, 1)
    run.attempt = attempt
    newest = definition(description="newest")
    stop = job_changes.heard(job, Standing(definition=newest, revision=7), at(2), calling=calling)
    assert (stop.reason if stop is not None else None) == reason
    inp = job_state.attempt_input(job, run)
    assert (inp.definition.description, inp.revision, job.run) == ("newest", 7, run)
