"""The transitions of a job's state: nothing is lost, nothing is counted twice, no stop is forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workflows.domain.states import (
    MINUTE,
    NOON,
    again,
    at,
    begun,
    begun_by_hand,
    comes_back,
    definition,
    minutes,
    planned,
    report,
    rows,
    state,
    told,
)
from workflows.contracts.attempt import HeartbeatDetails, OwnBody
from workflows.contracts.job import JobState, ManualRun, StopIntent
from workflows.contracts.planning import Plan, Stretch
from workflows.contracts.records import Pause
from workflows.domain import job_changes, job_records, job_sources, job_state

NO_STOP = StopIntent()
IF_HELD = StopIntent(intent="if_held", reason="paused")
NOW = StopIntent(intent="now", reason="deleted")
HOURLY: dict[str, Any] = {"schedule": {"every": "PT1H", "anchor": NOON.isoformat()}}


def details(phase: str, **fields: Any) -> HeartbeatDetails:
    return HeartbeatDetails.model_validate(
        {"native_attempt": 1, "phase": phase, "deliveries": 0, "reaps": 0, "at": at(1), **fields}
    )


# -- serving ---------------------------------------------------------------------------------------


def test_a_served_occurrence_moves_the_cursor_leaves_the_plan_and_counts_once() -> None:
    """Whatever becomes of it: its retries and its settlement do not count again."""
    job = state()
    begun(job)
    comes_back(job, report("failed", fired=1, ended=1.1))
    comes_back(job, report("succeeded", fired=1.3, ended=1.4))
    assert (job.cursor, minutes(job), job.scheduled_runs) == (at(1), [2, 3, 4], 1)


def test_a_manual_run_serves_no_occurrence() -> None:
    job = state(definition=definition(max_runs=1))
    begun_by_hand(job, 0.5)
    comes_back(job, report(fired=0.5, ended=0.6))
    assert (job.cursor, minutes(job), job.scheduled_runs) == (at(0), [1, 2, 3, 4], 0)
    assert job.stats.runs == 1


def test_what_is_skipped_uses_up_no_run() -> None:
    job = state(definition=definition(max_runs=3), plan=(1, 2, 3))
    begun(job)
    comes_back(job, report(fired=1, ended=2.5))
    assert told(job)[1:] == [("skipped", "overlap", 1)]
    assert job_state.plan_input(job, at(2.5)).remaining == 2


def test_only_an_empty_plan_says_that_max_runs_is_used_up() -> None:
    job = state((), definition=definition(max_runs=2))
    job_state.adopt(job, Plan(occurrences=planned(1, 2), cursor=at(0), exhausted=True), at(0))
    assert not job.plan_exhausted
    job_state.adopt(job, Plan(cursor=at(2), exhausted=True), at(2))
    assert job.plan_exhausted


# -- stops -----------------------------------------------------------------------------------------


def test_a_held_run_that_was_stopped_is_decided_again() -> None:
    job = state()
    run, inp = begun(job)
    job_state.stopped_unfired(job, run, inp, IF_HELD, at(0.9))
    assert (job.run, minutes(job), told(job), job.scheduled_runs) == (None, [1, 2, 3, 4], [], 0)


def test_a_manual_run_that_was_stopped_waits_first_in_line_with_its_body() -> None:
    job = state(triggers=[ManualRun(request="second", at=at(0.6))])
    job_sources.begin_manual(job, ManualRun(request="first", at=at(0.5), body=OwnBody(value=None)))
    run, inp = again(job)
    job_state.stopped_unfired(job, run, inp, IF_HELD, at(0.7))
    assert [one.request for one in job.triggers] == ["first", "second"]
    assert (job.triggers[0].at, job.triggers[0].body) == (at(0.5), OwnBody(value=None))


def test_a_waiting_retry_ends_as_a_dead_letter_with_a_pause() -> None:
    job = state(pause=Pause(since=at(1.05)))
    run, _ = begun(job)
    comes_back(job, report("failed", fired=1, ended=1.02, stored=True))
    job.pause = Pause(since=at(1.05))
    job.records = []
    if job.run is not None:
        job_changes.stop_waiting(job, run, IF_HELD, at(1.05))
    assert job.run is None
    assert job.last_run is not None
    assert (job.last_run.outcome, job.last_run.reason) == ("dead_lettered", "paused")
    assert job.stats.dead_lettered == 1


def retrying(job: JobState) -> None:
    begun(job)
    comes_back(job, report("failed", fired=1, ended=1.02, stored=True))


def test_a_retry_that_nobody_had_picked_up_ends_with_the_pause_that_cancelled_it() -> None:
    job = state()
    retrying(job)
    job.pause = Pause(since=at(1.1))
    run, inp = again(job)
    job_state.stopped_unfired(job, run, inp, IF_HELD, at(1.1))
    assert job.run is None
    assert told(job)[-1] == ("dead_lettered", "paused", 1)


DELETIONS: dict[str, tuple[StopIntent, bool, str]] = {
    "which lets runs finish": (StopIntent(intent="if_held", reason="deleted"), True, "dead_lettered"),
    "which cancels": (StopIntent(intent="now", reason="deleted"), True, "dead_lettered"),
    "behind a pause": (StopIntent(intent="if_held", reason="paused"), True, "dead_lettered"),
    "behind a cancellation": (StopIntent(intent="now", reason="asked"), True, "cancelled"),
    "in a history of 0.3.0": (StopIntent(intent="if_held", reason="deleted"), False, "cancelled"),
}


@pytest.mark.parametrize(("stop", "ends", "outcome"), DELETIONS.values(), ids=DELETIONS)
def test_a_retry_that_a_worker_holds_ends_with_its_job_as_one_that_waits(
    stop: StopIntent, ends: bool, outcome: str
) -> None:
    job = state(as_of_0_4=ends)
    retrying(job)
    run, inp = again(job)
    job_changes.delete(job, at(1.05))
    job_state.stopped_unfired(job, run, inp, stop, at(1.05))
    assert job.run is None
    assert job.last_run is not None
    assert job.last_run.outcome == outcome


UNSEEN: dict[str, tuple[StopIntent, int, float, float, int]] = {
    "no lease can have been lost yet": (IF_HELD, 0, 1.0, 1.4, 0),
    "not due yet": (IF_HELD, 0, 0.2, 0.9, 0),
    "perhaps between two holders": (IF_HELD, 0, 1.0, 1.5, 1),
    "perhaps so, and sent before": (IF_HELD, 1, 1.0, 1.5, 2),
    "sent before, and nobody can have had it since": (IF_HELD, 1, 1.0, 1.4, 1),
    "it ends here, sent or not": (NOW, 0, 1.0, 1.5, 0),
    "long enough for two holders": (IF_HELD, 0, 1.0, 2.0, 2),
    "long enough for more than may be lost": (IF_HELD, 0, 1.0, 60.0, 4),
}


@pytest.mark.parametrize(("stop", "before", "scheduled", "when", "deliveries"), UNSEEN.values(), ids=UNSEEN)
def test_a_stop_that_meets_no_holder_does_not_call_what_was_sent_unsent(
    stop: StopIntent, before: int, scheduled: float, when: float, deliveries: int
) -> None:
    """The server tells nothing of an earlier holder when it cancels an attempt that waits for the next."""
    job = state(definition=definition(heartbeat_timeout=30))
    run, _ = begun(job)
    run.deliveries = before
    _, inp = again(job)
    job_state.sent_unseen(run, inp, stop, at(scheduled), at(when), timedelta(seconds=30))
    assert run.deliveries == deliveries


SILENT: dict[str, tuple[HeartbeatDetails | None, float, int]] = {
    "it began when the run was due": (None, 1.5, 1),
    "it began so shortly before that it needed no fence": (None, 1.48, 1),
    "it began to hold the run earlier": (None, 1.4, 0),
    "it said that it holds, and needs no fence": (details("held", unfenced=True), 1.2, 1),
    "it said so, and the run is not due": (details("held", unfenced=True), 0.9, 0),
    "it said that it holds, and would fence": (details("held"), 1.6, 0),
}


@pytest.mark.parametrize(("left", "lost_at", "sent"), SILENT.values(), ids=SILENT)
def test_a_stop_that_meets_a_dead_holder_does_not_call_what_was_sent_unsent(
    left: HeartbeatDetails | None, lost_at: float, sent: int
) -> None:
    """The lease has half a minute, the run is due at 1."""
    job = state()
    run, inp = begun(job)
    job_state.sent_in_silence(run, inp, left, at(lost_at), timedelta(seconds=30))
    assert (run.deliveries, run.reaps) == (sent, sent)


def test_an_edit_leaves_a_retry_its_time() -> None:
    """Waiting or held: the next attempt is due when it was, under the new definition."""
    job = state()
    retrying(job)
    run, inp = again(job)
    before = run.fires_at
    job_changes.edit(job, definition(**HOURLY), at(1.05), calling=True)
    job_state.stopped_unfired(job, run, inp, IF_HELD, at(1.05))
    kept, inp = again(job)
    assert (kept.attempt, kept.fires_at, inp.revision) == (2, before, 2)
    assert inp.definition.schedule.every == timedelta(hours=1)


RETURNS: dict[str, tuple[str, bool, StopIntent, bool, str]] = {
    "at a worker's end: again": ("worker_stopping", False, NO_STOP, False, "same attempt"),
    "in flight at a worker's end: again": ("worker_stopping", True, NO_STOP, False, "same attempt"),
    "held, with a pause that came too late for it": ("worker_stopping", False, IF_HELD, False, "put back"),
    "in flight, with a pause: keeps its promise": ("worker_stopping", True, IF_HELD, False, "same attempt"),
    "in flight, with a deletion that breaks off": ("worker_stopping", True, NOW, True, "cancelled"),
    "held, with a deletion": ("worker_stopping", False, StopIntent(intent="if_held"), True, "cancelled"),
    "clock ahead, with a pause": ("clock_ahead", False, IF_HELD, False, "put back"),
    "clock behind: planned again": ("clock_behind", False, NO_STOP, False, "planned again"),
}


@pytest.mark.parametrize(("reason", "fired", "stop", "deleted", "expected"), RETURNS.values(), ids=RETURNS)
def test_a_run_that_comes_back_while_it_is_stopped_is_stopped(
    reason: str, fired: bool, stop: StopIntent, deleted: bool, expected: str
) -> None:
    job = state(deleted=deleted, pause=None if stop is NO_STOP or deleted else Pause(since=at(0.9)))
    run, inp = begun(job)
    back = report("returned", fired=1 if fired else None, ended=1.1 if fired else 0.9, reason=reason)
    job_state.learn(job, run, inp, back)
    job_state.returned(job, run, inp, back, stop, back.ended_at)
    if expected == "same attempt":
        assert job.run is run
        assert (run.attempt, run.deliveries, run.reaps) == (1, int(fired), 0)
    else:
        assert job.run is None
        assert (job.plan == []) is (expected == "planned again")
        assert told(job) == ([("cancelled", "deleted", 1)] if expected == "cancelled" else [])


def test_a_manual_run_that_comes_back_to_a_deleted_job_does_not_run() -> None:
    job = state(deleted=True)
    run, inp = begun_by_hand(job, 0.5)
    back = report("returned", ended=0.6, reason="worker_stopping")
    job_state.learn(job, run, inp, back)
    job_state.returned(job, run, inp, back, StopIntent(intent="if_held", reason="deleted"), at(0.6))
    assert (job.run, job.triggers) == (None, [])


def test_what_had_its_chance_in_time_is_not_late_after_it_was_returned() -> None:
    """A wait at the turnstile is of our own making."""
    job = state()
    run, inp = begun(job)
    assert inp.not_after is not None
    back = report("returned", ended=1.02, reason="turnstile")
    job_state.learn(job, run, inp, back)
    job_state.returned(job, run, inp, back, NO_STOP, at(1.02))
    assert again(job)[1].not_after is None


def test_what_was_returned_before_its_time_may_still_be_late() -> None:
    job = state()
    run, inp = begun(job)
    back = report("returned", ended=0.9, reason="worker_stopping")
    job_state.returned(job, run, inp, back, NO_STOP, at(0.9))
    assert again(job)[1].not_after == inp.not_after


def test_a_run_that_came_too_late_is_left_to_the_planner() -> None:
    job = state()
    run, _ = begun(job)
    job_state.late(job, run, at(5))
    assert (job.run, job.plan, job_state.plan_input(job, at(5)).late_until) == (None, [], at(1))


# -- lost leases and ends --------------------------------------------------------------------------

LOST: dict[str, tuple[HeartbeatDetails | None, str | None, tuple[int, int] | None, str | None]] = {
    "fired: a reap, and again": (details("fired", deliveries=1), None, (1, 1), None),
    "held, after a holder that fired: the reap was counted then": (
        details("held", deliveries=1, reaps=1), None, (1, 1), None,
    ),
    "without a word of its holder": (None, None, (0, 0), None),
    "the fourth": (details("fired", deliveries=4, reaps=3), None, None, "leases_lost"),
    "to be stopped wherever it was": (details("fired", deliveries=1), "deleted", None, "deleted"),
}  # fmt: skip


@pytest.mark.parametrize(("left", "stopped", "again_with", "reason"), LOST.values(), ids=LOST)
def test_a_lost_lease_is_a_reap_at_most_three_times(
    left: HeartbeatDetails | None, stopped: str | None, again_with: tuple[int, int] | None, reason: str | None
) -> None:
    job = state()
    run, inp = begun(job)
    job_state.lease_lost(job, run, inp, left=left, stopped=stopped, now=at(2))
    assert job.scheduled_runs == 1
    if again_with is None:
        assert job.run is None
        assert told(job) == [("cancelled" if stopped else "dead_lettered", reason, 1)]
    else:
        assert job.run is run
        assert (run.attempt, run.deliveries, run.reaps) == (1, *again_with)
        assert told(job) == []


ENDS: dict[str, tuple[dict[str, Any], int, str | None, str | None]] = {
    "succeeded": ({"outcome": "succeeded"}, 1, "succeeded", None),
    "retried": ({"outcome": "failed"}, 1, None, None),
    "no attempt left": ({"outcome": "failed"}, 5, "dead_lettered", "max_attempts"),
    "final by its status": ({"outcome": "failed", "retryable": False}, 1, "dead_lettered", "not_retryable"),
    "poison": ({"outcome": "failed", "reason": "leases_lost"}, 1, "dead_lettered", "leases_lost"),
    "out of time": ({"outcome": "timed_out", "reason": "max_duration"}, 1, "dead_lettered", "max_duration"),
    "cancelled in flight": ({"outcome": "cancelled", "reason": "deleted"}, 1, "cancelled", "deleted"),
}


@pytest.mark.parametrize(("told_by", "attempt", "outcome", "reason"), ENDS.values(), ids=ENDS)
def test_how_an_attempt_ends(
    told_by: dict[str, Any], attempt: int, outcome: str | None, reason: str | None
) -> None:
    job = state()
    run, _ = begun(job)
    run.attempt = attempt
    comes_back(job, report(**{"fired": 1, "ended": 1.1, **told_by}))
    if outcome is None:
        kept, inp = again(job)
        assert (kept.attempt, kept.fires_at, kept.deliveries) == (2, at(1.1) + timedelta(seconds=10), 0)
        assert (inp.not_after, inp.first_started_at) == (None, at(1))
    else:
        assert job.run is None
        assert job.last_run is not None
        assert (job.last_run.outcome, job.last_run.reason) == (outcome, reason)


def test_a_deleted_job_tries_nothing_again() -> None:
    job = state(deleted=True)
    begun(job)
    comes_back(job, report("failed", fired=1, ended=1.1))
    assert job.run is None
    assert told(job)[-1] == ("dead_lettered", "deleted", 1)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("asked", "cancelled"), ("replaced", "replaced"), ("deleted", "cancelled")],
)
def test_a_run_that_fails_before_its_stop_reaches_it_is_not_tried_again(reason: str, outcome: str) -> None:
    """The answer to the stop has said that no request is written after it."""
    job = state(deleted=reason == "deleted")
    run, inp = begun(job)
    back = report("failed", fired=1, ended=1.1)
    job_state.ended(job, run, inp, back, back.ended_at, stopped=reason)
    assert job.run is None
    assert told(job)[-1] == (outcome, reason, 1)


# -- stretches -------------------------------------------------------------------------------------


def test_a_missed_stretch_that_goes_on_is_one_row_and_one_record() -> None:
    job = state(())
    for first, last in ((1, 3), (4, 4), (5, 9)):
        count = last - first + 1
        job_records.record_stretch(
            job, Stretch(count=count, first=at(first), last=at(last)), "missed", None, at(10)
        )
    [row] = rows(job)
    assert (row.count, row.scheduled_time, row.last_scheduled_time) == (9, at(1), at(9))
    assert job.stats.missed == 9


def test_a_missed_one_that_lies_before_the_stretch_has_a_row_of_its_own() -> None:
    """A run that the plan had gone past comes back as late after what followed it was missed."""
    job = state(())
    for first, last in ((4, 9), (3, 3), (10, 10)):
        stretch = Stretch(count=last - first + 1, first=at(first), last=at(last))
        job_records.record_stretch(job, stretch, "missed", None, at(11))
    told = sorted((row.scheduled_time, row.last_scheduled_time, row.count) for row in rows(job))
    assert told == [(at(3), at(3), 1), (at(4), at(10), 7)]
    assert job.stats.missed == 8


@given(st.lists(st.tuples(st.sampled_from(["missed", "skipped"]), st.integers(1, 500)), max_size=400))
def test_stretches_are_counted_once_however_many_wait_for_the_database(
    stretches: list[tuple[str, int]],
) -> None:
    job = state(())
    for number, (outcome, count) in enumerate(stretches):
        stretch = Stretch(count=count, first=at(number), last=at(number + 0.5))
        job_records.record_stretch(
            job, stretch, "missed" if outcome == "missed" else "skipped", None, NOON + number * MINUTE
        )
    for outcome, counted in (("missed", job.stats.missed), ("skipped", job.stats.skipped)):
        assert sum(row.count for row in rows(job) if row.outcome == outcome) == counted
        assert counted == sum(count for kind, count in stretches if kind == outcome)


def test_a_clock_set_far_back_goes_on_from_now_and_serves_nothing_twice() -> None:
    """What ran while the clock was wrong is remembered: its instants come again, and are left out."""
    found = state([121], cursor=120, served=[at(119), at(120)])
    assert not job_state.clock_was_set_back(found, at(119))
    assert job_state.clock_was_set_back(found, at(1))
    assert (found.cursor, found.plan) == (at(1), [])
    job_state.adopt(found, Plan(occurrences=planned(2, 119, 120, 121), cursor=at(1)), at(1))
    assert [one.scheduled_time for one in found.plan] == [at(2), at(121)]


def test_a_held_run_that_is_cancelled_is_neither_a_run_nor_a_failure() -> None:
    found = state()
    job_sources.begin_planned(found, found.plan[0], found.plan[0].fires_at)
    assert found.run is not None
    asked = job_state.attempt_input(found, found.run)
    job_state.settle(found, found.run, asked, "cancelled", "asked", at(1))
    assert (found.stats.runs, found.stats.consecutive_failures) == (0, 0)
