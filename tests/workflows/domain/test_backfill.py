"""Backfills as pure rules: whose turn it is, what is begun, counted, put back, kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workflows.domain.backfills import accepted, begin, end, own
from tests.workflows.domain.states import at, begun, definition, report, state
from workflows.contracts import names
from workflows.contracts.attempt import Occurrence
from workflows.contracts.backfill import (
    BACKFILLS_KEPT,
    BackfillPage,
    Paged,
)
from workflows.contracts.job import BesideRun, JobState, QueuedRun, StopIntent
from workflows.contracts.records import Pause
from workflows.domain import backfill, job_changes, job_sources, job_state

# -- turns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("next_due", "last_run_ms", "turns", "its_turn"),
    [
        pytest.param(1, 0, 0, True, id="nothing-ran-yet"),
        pytest.param(1, 59_999, 0, True, id="farther-off-than-the-last-run-took"),
        pytest.param(1, 60_000, 0, False, id="as-near-as-the-last-run-took"),
        pytest.param(0, 0, 0, False, id="due-now"),
        pytest.param(-1, 100, 8, False, id="due-and-the-ninth-turn-of-others"),
        pytest.param(-1, 100, 9, True, id="due-and-the-tenth-turn"),
        pytest.param(None, 10**9, 0, True, id="nothing-follows"),
    ],
)
def test_regular_occurrences_go_first_but_for_every_tenth_turn(
    next_due: float | None, last_run_ms: int, turns: int, its_turn: bool
) -> None:
    plan = [] if next_due is None else [next_due]
    job = state(plan, plan_exhausted=next_due is None, last_run_ms=last_run_ms)
    one = accepted(job, -5)
    job.turns += turns
    assert backfill.turn(job, at(0)) == (one if its_turn else None)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"pause": Pause(since=at(0))}, id="paused"),
        pytest.param({"deleted": True}, id="deleted"),
        pytest.param({"plan": [], "plan_exhausted": False}, id="the-plan-is-not-known"),
        pytest.param(
            {"beside": [BesideRun(key="k", scheduled_time=at(0), fires_at=at(0), outcome="running", seq=0,
                                  forced=False)]},
            id="a-run-of-another-policy-is-left",
        ),
    ],
)  # fmt: skip
def test_no_slice_begins(change: dict[str, Any]) -> None:
    job = state([5])
    accepted(job, -5)
    assert backfill.turn(job, at(0)) is not None
    assert backfill.turn(job.model_copy(update=change), at(0)) is None


def test_an_occurrence_that_is_to_be_skipped_is_in_nobodys_way() -> None:
    job = state([0, 5], skips=[at(0)])
    one = accepted(job, -5)
    assert backfill.turn(job, at(0)) is one


def test_backfills_take_turns() -> None:
    job = state([50])
    both = [accepted(job, -9, -8), accepted(job, -7, -6)]
    begun_of = []
    for _ in range(4):
        one = backfill.turn(job, at(0))
        assert one is not None
        begun_of.append(begin(job, one).backfill)
        end(job)
    assert begun_of == [1, 2, 1, 2]
    assert [one.status for one in both] == ["done", "done"]


def test_what_is_due_when_a_backfill_goes_first_waits_by_our_own_doing() -> None:
    job = state([-3, 0, 5])
    backfill.give_due_its_time(job, at(0))
    assert [(one.waited, one.not_after is None) for one in job.plan] == [
        (False, False), (True, True), (False, False)
    ]  # fmt: skip


# -- what is begun ---------------------------------------------------------------------------------


def test_keys_attempts_and_triggers() -> None:
    job = state([50])
    missing = accepted(job)
    missing.page = [Paged(at=at(-9), attempt=6)]
    run = begin(job, missing)
    assert (run.occurrence.key, run.attempt, run.first_attempt) == (own(-9), 6, 6)
    assert (run.occurrence.trigger, run.occurrence.scheduled_time, run.fires_at) == (
        "backfill",
        at(-9),
        at(0),
    )
    assert job_state.attempt_input(job, run).not_after is None
    end(job)
    assert (job.scheduled_runs, job.cursor, job.stats.succeeded) == (0, at(0), 1)
    everything = accepted(job, -9, only="all")
    assert begin(job, everything).occurrence.key == own(-9) + "+b2"


def test_a_run_beside_the_loop_has_a_workflow_of_its_own() -> None:
    """That of the schedule's own run may have been there before, under the same key."""
    job = state([50], definition=definition(concurrency={"policy": "allow"}))
    for only, suffix in (("missing", "+b1"), ("all", "+b2")):
        run = begin(job, accepted(job, -9, only=only))
        assert job_sources.beside_row(job, run).name == names.suffix_of(own(-9)) + suffix
        end(job)


def test_an_execution_that_is_alive_under_its_own_key_is_not_started_a_second_time() -> None:
    row = BesideRun(key=own(-9), scheduled_time=at(-9), fires_at=at(-9), outcome="running", seq=0)
    job = state([50], beside=[row])
    one = accepted(job, -9, -8)
    assert begin(job, one).occurrence.key == own(-8)
    end(job)
    assert (one.status, one.started) == ("done", 1)


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [("succeeded", (1, 1, 0, 0)), ("failed", (1, 0, 1, 0)), ("cancelled", (1, 0, 0, 1))],
)
def test_an_end_is_counted_and_the_last_one_is_the_end(outcome: str, counted: tuple[int, ...]) -> None:
    job = state([50])
    one = accepted(job, -5)
    begin(job, one)
    assert (one.started, one.status) == (1, "running")
    end(job, outcome)
    assert (one.started, one.succeeded, one.dead_lettered, one.cancelled) == counted
    assert (one.status, one.ended_at, job.last_run_ms) == ("done", at(0.5), 30_000)


def test_a_run_that_was_put_back_is_started_once_in_all_and_in_its_place() -> None:
    job = state([50])
    one = accepted(job, -5, -4)
    run = begin(job, one)
    job_state.stopped_unfired(
        job, run, job_state.attempt_input(job, run), StopIntent(intent="if_held", reason="paused"), at(0)
    )
    assert (job.run, [entry.at for entry in one.page], one.started) == (None, [at(-5), at(-4)], 1)
    begin(job, one)
    assert one.started == 1


def test_a_pause_meets_a_run_that_waits_for_its_group_or_its_retry() -> None:
    """The one waits for another turn, the other ends as any retry does."""
    job = state([50])
    one = accepted(job, -5, -4)
    run = begin(job, one)
    stop = StopIntent(intent="if_held", reason="paused")
    job_changes.stop_waiting(job, run, stop, at(0))
    assert (job.run, len(one.page)) == (None, 2)
    run = begin(job, one)
    told = report("failed", fired=0, ended=0.5)
    job_state.ended(job, run, job_state.attempt_input(job, run), told, told.ended_at)
    assert (job.run, run.attempt) == (run, 2)
    job_changes.stop_waiting(job, run, stop, at(1))
    assert (job.run, len(one.page), one.dead_lettered) == (None, 1, 1)


@pytest.mark.parametrize("calling", [False, True])
def test_an_edit_puts_a_run_back_that_no_worker_has(calling: bool) -> None:
    job = state([50])
    one = accepted(job, -5)
    begin(job, one)
    job_changes.edit(job, definition(description="new"), at(0), calling=calling)
    assert (job.run is None, bool(one.page)) == (not calling, not calling)


def test_a_cancelled_backfill_takes_nothing_back() -> None:
    job = state([50])
    one = accepted(job, -5, -4)
    run = begin(job, one)
    backfill.cancel(job, one, "asked", at(1))
    job_sources.put_back(job, run, at(1))
    assert (one.status, one.page, one.cancelled, job.run) == ("cancelled", [], 1, None)
    assert backfill.turn(job, at(1)) is None


def test_a_run_beside_the_loop_counts_and_one_that_vanished_does_too() -> None:
    row = BesideRun(
        key=own(-5), scheduled_time=at(-5), fires_at=at(0), outcome="running", seq=0, backfill=1, forced=False
    )
    job = state([50], beside=[row])
    one = accepted(job)
    assert backfill.running(job, one) == 1
    job_changes.lost_beside(job, row, at(1))
    assert (one.cancelled, one.status) == (1, "done")


@pytest.mark.parametrize(
    ("active", "alive_of_it", "limit", "free"),
    [
        pytest.param(0, 0, 3, True, id="the-loop-one-more-and-a-place-for-the-schedule"),
        pytest.param(1, 0, 3, False, id="the-last-place-is-the-schedules"),
        pytest.param(0, 0, 2, False, id="a-limit-of-two"),
        pytest.param(2, 2, 9, False, id="as-many-as-it-may-have"),
        pytest.param(2, 0, 9, True, id="others-do-not-count-for-it"),
    ],
)
def test_how_many_run_beside_the_loop(active: int, alive_of_it: int, limit: int, free: bool) -> None:
    rows = [
        BesideRun(key=f"k{n}", scheduled_time=at(-9), fires_at=at(0), outcome="running", seq=0, forced=False,
                  backfill=1 if n < alive_of_it else None)
        for n in range(active)
    ]  # fmt: skip
    job = state([1], beside=rows, definition=definition(concurrency={"policy": "allow", "limit": limit}))
    one = accepted(job, -5, max_concurrent=2)
    assert backfill.beside_turn(job) is None, "the loop takes the first"
    begun(job)
    assert backfill.beside_turn(job) == (one if free else None)


@pytest.mark.parametrize(
    ("at_once", "counts", "its_turn"), [(1, True, False), (2, True, True), (1, False, True)]
)
def test_runs_that_are_beside_the_loop_count_when_it_takes_the_next(
    at_once: int, counts: bool, its_turn: bool
) -> None:
    """Histories that 0.3.0 began go on as they did. Another backfill gets the turn instead."""
    row = BesideRun(
        key=own(-6), scheduled_time=at(-6), fires_at=at(0), outcome="running", seq=0, backfill=1, forced=False
    )
    allow = definition(concurrency={"policy": "allow", "limit": 9})
    job = state([50], beside=[row], definition=allow, as_of_0_4=counts)
    one = accepted(job, -5, max_concurrent=at_once)
    assert backfill.turn(job, at(0)) == (one if its_turn else None)
    other = accepted(job, -4)
    assert backfill.turn(job, at(0)) == (one if its_turn else other)


def test_the_last_ended_ones_are_kept_behind_those_under_way() -> None:
    job = state([50])
    for _ in range(BACKFILLS_KEPT + 5):
        backfill.cancel(job, accepted(job), "asked", at(0))
    last = accepted(job, -5)
    assert [one.number for one in job.backfills] == [last.number, *range(6, BACKFILLS_KEPT + 6)]
    backfill.cancel_all(job, "deleted", at(0))
    assert [one.number for one in job.backfills] == list(range(7, BACKFILLS_KEPT + 7))


# -- what others ran meanwhile ---------------------------------------------------------------------


def redriven(job: JobState, minute: float, attempt: int, outcome: str) -> None:
    """A redrive of this occurrence runs from its first to its last attempt."""
    occurrence = Occurrence(
        key=own(minute), trigger="redrive", scheduled_time=at(minute), fires_at=at(minute)
    )
    job_sources.begin_redrive(job, QueuedRun(occurrence=occurrence, attempt=attempt, at=at(0)))
    end(job, outcome)


@pytest.mark.parametrize("paged", [True, False], ids=["in-its-page", "in-the-page-on-its-way"])
@pytest.mark.parametrize(("outcome", "goes_on"), [("succeeded", None), ("failed", 3)])
def test_what_was_redriven_since_it_was_asked_for_uses_no_execution_id_again(
    paged: bool, outcome: str, goes_on: int | None
) -> None:
    """A success is not missing any more; behind a failure the next attempt begins."""
    job = state([5])
    one = accepted(job, -3, -2)
    page = BackfillPage(occurrences=one.page, cursor=at(0), last=True)
    asked = backfill.page_asked(job, one)
    if not paged:
        one.page, one.all_paged = [], False
    redriven(job, -3, 2, outcome)
    if not paged:
        backfill.adopt(job, one.number, asked, page, {}, at(1))
    attempts = {entry.at: entry.attempt for entry in one.page}
    assert attempts == {at(-2): 1} | ({at(-3): goes_on} if goes_on is not None else {})


def test_a_backfill_is_done_when_others_have_run_all_that_was_left() -> None:
    job = state([5])
    one = accepted(job, -3)
    redriven(job, -3, 2, "succeeded")
    assert (one.status, one.started, backfill.remaining(one)) == ("done", 0, 0)


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "until"),
    [
        pytest.param({"plan": [], "plan_exhausted": True}, 0, id="nothing-is-to-come"),
        pytest.param({"plan": [], "plan_exhausted": False}, -30, id="the-plan-is-not-known"),
        pytest.param({"plan_exhausted": True}, -30, id="the-last-ones-are-to-come"),
    ],
)
def test_a_page_reaches_over_what_the_schedule_will_never_get_to(
    change: dict[str, Any], until: float
) -> None:
    """After ``max_runs`` the cursor stays at the last run; what lies behind is in the range all the same."""
    job = state([-20, 5], cursor=-30).model_copy(update=change)
    one = accepted(job, past_end=True)
    one.all_paged, one.cursor = False, at(-20)
    assert backfill.wants_page(job, one) is (until > -20)
    assert backfill.page_asked(job, one).settled == at(until)


def test_a_page_waits_for_the_last_run_that_has_not_been_sent() -> None:
    job = state([-20], cursor=-30, plan_exhausted=True)
    one = accepted(job, past_end=True)
    begun(job)
    job.plan = []
    assert backfill.page_asked(job, one).settled == at(-30)


def test_backfills_that_an_older_release_accepted_wait_as_they_did() -> None:
    job = state([], cursor=-30, plan_exhausted=True)
    assert backfill.page_asked(job, accepted(job)).settled == at(-30)
