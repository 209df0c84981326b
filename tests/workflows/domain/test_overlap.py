"""Counting at a run's end gives what deciding at each instant would have given."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workflows.domain.states import (
    MINUTE,
    NOON,
    at,
    begun,
    begun_by_hand,
    comes_back,
    definition,
    minutes,
    planned,
    report,
    rows,
    run_ends,
    state,
    told,
)
from workflows.contracts.job import JobState
from workflows.contracts.planning import Plan, Stretch
from workflows.domain import job_changes, job_sources, job_state, planning

OCCURRENCES = 60
TENTHS = 10
"""Durations are tenths of a minute."""
GRACE = timedelta(seconds=90)


@dataclass
class Came:
    """What became of each occurrence, by its minute."""

    ran: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)


def each_instant(policy: str, room: int, durations: list[int]) -> Came:
    """The rule as it reads: minute by minute, with a queue that drops its oldest."""
    came, line, busy_until, spent = Came(), list[int](), 0, iter(durations)

    def begin(minute: int, now: int) -> None:
        nonlocal busy_until
        came.ran.append(minute)
        busy_until = now + next(spent)

    for minute in range(1, OCCURRENCES + 1):
        now = minute * TENTHS
        while line and busy_until <= now:
            begin(line.pop(0), busy_until)
        if busy_until <= now:
            begin(minute, now)
        elif policy == "forbid":
            came.skipped.append(minute)
        else:
            line.append(minute)
            if len(line) > room:
                came.skipped.append(line.pop(0))
    while line:
        begin(line.pop(0), busy_until)
    return came


def at_the_end(
    policy: str, room: int, durations: list[int], batch: int, catch_up: str
) -> tuple[Came, JobState]:
    """The job's way: nothing wakes during a run, and the planner is asked for ``batch`` at a time."""
    job = state(
        (),
        definition=definition(
            concurrency={"policy": policy, "max_queued": room},
            max_runs=None,
            ends_at=at(OCCURRENCES).isoformat(),
            catch_up={"policy": catch_up, "grace": GRACE.total_seconds()},
        ),
        keeps_overdue=True,
        keeps_line=True,
    )
    came, now, spent = Came(), NOON, iter(durations)
    for _ in range(OCCURRENCES * 4):
        if not job.plan:
            if job.plan_exhausted:
                break
            asked = job_state.plan_input(job, now).model_copy(update={"limit": batch})
            job_state.adopt(job, planning.plan(asked), now)
            continue
        due = job.plan[0]
        assert due.not_after is None or due.not_after >= now, "no outage here, so nothing can be late"
        now = max(now, due.fires_at)
        run = job_sources.begin_planned(job, due, now)
        came.ran.append(round((due.scheduled_time - NOON) / MINUTE))
        now = run_ends(job, run, now + MINUTE / TENTHS * next(spent), started=now)
    for row in rows(job):
        if row.outcome == "skipped":
            first = round((row.scheduled_time - NOON) / MINUTE)
            came.skipped.extend(range(first, first + row.count))
    return came, job


@pytest.mark.parametrize("batch", [50, 7, 1])
@pytest.mark.parametrize(
    ("policy", "catch_up"), [("forbid", "latest"), ("queue", "latest"), ("queue", "all")]
)
@given(
    room=st.integers(1, 6),
    durations=st.lists(
        st.sampled_from([2, 9, 10, 11, 25, 42, 97]),
        min_size=OCCURRENCES + 1,
        max_size=OCCURRENCES + 1,
    ),
)
def test_the_same_runs_and_the_same_skips(
    policy: str, catch_up: str, batch: int, room: int, durations: list[int]
) -> None:
    came, job = at_the_end(policy, room, durations, batch, catch_up)
    expected = each_instant(policy, room, durations)
    assert came.ran == expected.ran
    assert sorted(came.skipped) == sorted(expected.skipped)
    assert (job.stats.skipped, job.stats.missed) == (len(expected.skipped), 0)


# -- what the job makes of it -----------------------------------------------------------------------

OVERLAPS: dict[str, tuple[list[float], float, list[tuple[str, str | None, int]], list[float]]] = {
    "nothing fell due": ([1, 2, 3], 1.9, [], [2, 3]),
    "the end itself is free": ([1, 2, 3], 2, [], [2, 3]),
    "one of three": ([1, 2, 3], 2.1, [("skipped", "overlap", 1)], [3]),
    "two of three": ([1, 2, 3, 4], 3.5, [("skipped", "overlap", 2)], [4]),
}


@pytest.mark.parametrize(("plan", "ended", "rows_told", "left"), OVERLAPS.values(), ids=OVERLAPS)
def test_what_fell_due_while_a_run_was_active_is_skipped_as_one_row(
    plan: list[float], ended: float, rows_told: list[tuple[str, str | None, int]], left: list[float]
) -> None:
    job = state(plan)
    begun(job)
    comes_back(job, report(fired=1, ended=ended, stored=True))
    assert told(job) == rows_told
    assert minutes(job) == left
    assert job.stats.skipped == sum(count for _, _, count in rows_told)


def test_a_whole_batch_overlapped_is_handed_to_the_planner() -> None:
    """It alone knows what lies behind the batch, and counts all of it in one row."""
    job = state((1, 2, 3))
    begun(job)
    comes_back(job, report(fired=1, ended=60, stored=True))
    assert (job.plan, told(job)) == ([], [])
    asked = job_state.plan_input(job, at(60))
    assert (asked.after, asked.passed_until) == (at(1), at(60) - timedelta(microseconds=1))
    passed = Stretch(count=58, first=at(2), last=at(59))
    job_state.adopt(job, Plan(occurrences=planned(60), passed=passed, cursor=at(59)), at(60))
    assert told(job) == [("skipped", "overlap", 58)]
    assert (job.passed_until, job.cursor, job.stats.skipped) == (None, at(59), 58)


DROPPED = {
    "by an edit": lambda job: job_changes.edit(job, definition(description="new"), at(1.5), calling=True),
    "by a newer tzdata": lambda job: job_state.drop_plan(job),
    "by a pause that has ended": lambda job: job_changes.end_pause(job, at(1.5)),
}


@pytest.mark.parametrize("drop", DROPPED.values(), ids=DROPPED)
def test_a_plan_dropped_during_a_run_does_not_set_free_what_fell_due_meanwhile(drop: Any) -> None:
    job = state()
    begun(job)
    drop(job)
    comes_back(job, report(fired=1, ended=3.5, stored=True))
    asked = job_state.plan_input(job, at(3.5))
    assert asked.passed_until is not None
    assert at(3) <= asked.passed_until < at(3.5)


def test_the_end_of_a_schedule_leaves_nothing_to_the_planner() -> None:
    job = state((1,), plan_exhausted=True)
    begun(job)
    comes_back(job, report(fired=1, ended=60))
    assert (job.passed_until, job.blocked_since, job.plan_exhausted) == (None, None, True)


def test_an_occurrence_waits_behind_a_manual_run_instead_of_being_skipped() -> None:
    job = state()
    begun_by_hand(job, 0.5)
    comes_back(job, report(fired=0.5, ended=1.5, stored=True))
    assert (told(job), minutes(job)) == ([], [1, 2, 3, 4])
    assert job_state.plan_input(job, at(1.5)).blocked_since == at(0.5)


def test_what_was_held_up_is_forgotten_when_it_has_run() -> None:
    """Else an outage long after would not be one for the occurrence that was newest then."""
    job = state()
    begun_by_hand(job, 0.5)
    comes_back(job, report(fired=0.5, ended=1.5, stored=True))
    begun(job)
    comes_back(job, report(fired=1.6, ended=1.7, stored=True))
    assert job_state.plan_input(job, at(9)).blocked_since is None


def test_an_occurrence_waits_behind_a_run_that_started_later_than_its_grace() -> None:
    job = state(definition=definition(catch_up={"grace": 30}))
    begun(job)
    comes_back(job, report(fired=1.6, ended=2.2, stored=True))
    assert (told(job), minutes(job), job.blocked_since) == ([], [2, 3, 4], at(1.6))


def late(takes: float, runs_errands: bool = True) -> list[float]:
    """Minutes by which each run starts late, from an outage of twenty minutes on."""
    job = state(
        range(1, 101),
        definition=definition(ends_at=at(100.5).isoformat(), catch_up={"policy": "latest", "grace": 30 * 60}),
        plan_exhausted=True,
        runs_errands=runs_errands,
    )
    job.plan = [due.model_copy(update={"not_after": None}) for due in job.plan]
    now, found = at(20.5), []
    while job.plan or not job.plan_exhausted:
        if not job.plan:
            job_state.adopt(job, planning.plan(job_state.plan_input(job, now)), now)
            continue
        due = job.plan[0]
        now = max(now, due.fires_at)
        found.append((now - due.fires_at) / MINUTE)
        run = job_sources.begin_planned(job, due, now)
        now = run_ends(job, run, now + MINUTE * takes, started=now)
    counted = len(found) + job.stats.skipped
    assert (counted, job.stats.missed) == (100, 0)
    return found


def test_a_late_job_comes_back_to_its_grid() -> None:
    """Its runs are longer than its interval: it works off the line, and skips what falls due meanwhile."""
    found = late(1.5)
    assert found[:3] == [19.5, 20.0, 20.5]
    assert found[-1] == 0
    assert late(1.5, runs_errands=False)[-1] > 19, "as 0.1.0 did, and its histories go on doing"


def test_what_a_late_run_kept_waiting_is_left_to_the_planner_from_its_first_on() -> None:
    """All that was planned fell due, part of it before the run began: none of it is dropped for that."""
    job = state((1, 2, 3), definition=definition(concurrency={"policy": "queue"}))
    job_sources.begin_planned(job, job.plan[0], at(4))
    comes_back(job, report(fired=4, ended=5.5, stored=True))
    assert (job.plan, job.blocked_since) == ([], at(2))
    asked = job_state.plan_input(job, at(5.5))
    made = planning.plan(asked)
    assert made.dropped is None
    assert [one.scheduled_time for one in made.occurrences][:4] == [at(2), at(3), at(4), at(5)]


@given(
    durations=st.lists(st.sampled_from([3, 12, 15, 31]), min_size=61, max_size=61),
    drops=st.lists(st.booleans(), min_size=61, max_size=61),
    grace=st.sampled_from([2, 5, 40]),
)
def test_each_occurrence_is_counted_once_whatever_drops_the_plan(
    durations: list[int], drops: list[bool], grace: int
) -> None:
    """A late job works off a line, skips behind it, misses what is older than its grace, plans anew."""
    job = state(
        (),
        definition=definition(
            ends_at=at(60.5).isoformat(), catch_up={"policy": "latest", "grace": grace * 60}
        ),
        runs_errands=True,
    )
    now, ran, turns = at(20.5), 0, zip(durations, drops, strict=True)
    while job.plan or not job.plan_exhausted:
        if not job.plan or (job.plan[0].not_after or now) < now:
            job_state.drop_plan(job)
            job_state.adopt(job, planning.plan(job_state.plan_input(job, now)), now)
            continue
        due = job.plan[0]
        now = max(now, due.fires_at)
        takes, drop = next(turns)
        run = job_sources.begin_planned(job, due, now)
        now = run_ends(job, run, now + MINUTE / TENTHS * takes, started=now)
        ran += 1
        if drop:
            job_state.drop_plan(job)
    assert ran + job.stats.skipped + job.stats.missed == 60
