"""Counting at a run's end gives what deciding at each instant would have given."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
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
    state,
    told,
)
from workflows.contracts.backfill import Paged
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import JobState, ManualRun, RunState
from workflows.contracts.planning import Plan, Stretch
from workflows.domain import backfill, job_changes, job_sources, job_state, overlap, planning
from workflows.domain.active import of_loop

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
        now = _end(job, run, now + MINUTE / TENTHS * next(spent), started=now)
    for row in rows(job):
        if row.outcome == "skipped":
            first = round((row.scheduled_time - NOON) / MINUTE)
            came.skipped.extend(range(first, first + row.count))
    return came, job


def _end(job: JobState, run: RunState, ended_at: datetime, *, started: datetime) -> datetime:
    run.started_at = started
    job_state.served(job, run)
    job.run = None
    overlap.settle(job, of_loop(run, ended_at), ended_at)
    return ended_at


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
        now = _end(job, run, now + MINUTE * takes, started=now)
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
        now = _end(job, run, now + MINUTE / TENTHS * takes, started=now)
        ran += 1
        if drop:
            job_state.drop_plan(job)
    assert ran + job.stats.skipped + job.stats.missed == 60


# -- what was overdue before anything ran ------------------------------------------------------------


def line_of(
    plan: list[float],
    *,
    fires: float,
    started: float,
    ended: float,
    begun: float | None = None,
    waited: tuple[float, ...] = (),
    policy: str = "queue",
    catch_up: str = "all",
    keeps_overdue: bool = True,
    keeps_line: bool = True,
) -> JobState:
    """A job with room for one in line, after a run of its first occurrence."""
    job = state(
        plan,
        definition=definition(
            concurrency={"policy": policy, "max_queued": 1},
            catch_up={"policy": catch_up, "grace": GRACE.total_seconds()},
        ),
        keeps_overdue=keeps_overdue,
        keeps_line=keeps_overdue and keeps_line,
    )
    job.plan = [one.model_copy(update={"waited": one.scheduled_time in map(at, waited)}) for one in job.plan]
    run = job_sources.begin_planned(job, job.plan[0], at(started if begun is None else begun))
    assert run.fires_at == at(fires)
    _end(job, run, at(ended), started=at(started))
    return job


LINES: dict[str, tuple[dict[str, Any], list[float], int]] = {
    "started later than its grace: nothing counts": (
        {"plan": [1, 2, 3, 4, 5, 9], "fires": 1, "started": 3.1, "ended": 5.5}, [2, 3, 4, 5, 9], 0,
    ),
    "started in time: what was due before waits apart": (
        {"plan": [1, 1.5, 2, 9], "fires": 1, "started": 2.2, "ended": 2.9}, [1.5, 2, 9], 0,
    ),
    "the line is set up when those have run": (
        {"plan": [1, 1.5, 2, 3, 4, 5, 9], "fires": 1, "started": 2.2, "ended": 5.5}, [1.5, 2], 0,
    ),
    "nothing was due before": (
        {"plan": [1, 2, 3, 4, 9], "fires": 1, "started": 1, "ended": 4.5}, [4, 9], 2,
    ),
    "it stood in line itself": (
        {"plan": [1, 3, 3.5, 4, 9], "fires": 1, "begun": 2.95, "started": 3.02, "ended": 4.5, "waited": (1,)},
        [4, 9], 2,
    ),
    "it stood in line, and no worker came for long": (
        {"plan": [1, 1.5, 2, 9], "fires": 1, "begun": 1.2, "started": 2.2, "ended": 2.9, "waited": (1,)},
        [1.5, 2, 9], 0,
    ),
    "it stood in line, and no worker came within its grace": (
        {"plan": [1, 2, 3, 4, 9], "fires": 1, "begun": 1.2, "started": 3.2, "ended": 4.9, "waited": (1,)},
        [2, 3, 4, 9], 0,
    ),
    "others stood in line before nothing ran": (
        {"plan": [1, 2, 3, 4, 5, 9], "fires": 1, "started": 4.1, "ended": 5.5, "waited": (1, 2)},
        [2, 3, 4], 0,
    ),
    "only the newest are to be caught up": (
        {"plan": [1, 2, 3, 4, 5, 9], "fires": 1, "started": 3.1, "ended": 5.5, "catch_up": "latest"},
        [5, 9], 3,
    ),
    "beside one another": (
        {"plan": [1, 2, 3, 4, 5, 9], "fires": 1, "started": 3.1, "ended": 5.5, "policy": "allow"},
        [2, 3, 4, 5, 9], 0,
    ),
    "one in the place of the other": (
        {"plan": [1, 2, 3, 4, 5, 9], "fires": 1, "started": 3.1, "ended": 5.5, "policy": "replace"},
        [5, 9], 3,
    ),
    "begun by 0.2.0": (
        {"plan": [1, 2, 3, 4, 5, 9], "fires": 1, "started": 3.1, "ended": 5.5, "keeps_overdue": False},
        [5, 9], 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("keeps_line", [True, False], ids=["now", "begun by 0.3.0"])
@pytest.mark.parametrize(("given", "left", "skipped"), LINES.values(), ids=LINES)
def test_what_was_overdue_takes_no_room_in_the_line(
    given: dict[str, Any], left: list[float], skipped: int, keeps_line: bool
) -> None:
    job = line_of(**given, keeps_line=keeps_line)
    assert (minutes(job), job.stats.skipped, job.stats.missed) == (left, skipped, 0)


def test_the_planner_sets_up_the_line_behind_what_was_overdue() -> None:
    """Which runs first, however often it plans meanwhile, and of which none is dropped."""
    job = line_of([1, 1.5, 2, 3, 4, 5, 9], fires=1, started=2.2, ended=5.5)
    assert (job.blocked_since, job.blocked_until) == (at(2.2), at(5.5))
    every = {"every": 30, "anchor": at(0).isoformat()}
    job.definition = definition(
        schedule=every, concurrency=job.definition.concurrency, catch_up=job.definition.catch_up
    )
    for due in (1.5, 2):
        made = planning.plan(job_state.plan_input(job, at(5.6)))
        job_state.adopt(job, made, at(5.6))
        assert (made.before_line, made.dropped, minutes(job)[0]) == (True, None, due)
        assert minutes(job)[-1] == 2
        job_sources.mark_served(job, at(due))
    made = planning.plan(job_state.plan_input(job, at(5.6)))
    job_state.adopt(job, made, at(5.6))
    assert made.dropped == Stretch(count=5, first=at(2.5), last=at(4.5))
    assert (made.before_line, minutes(job)[:2], told(job)) == (
        False,
        [5, 5.5],
        [("skipped", "queue_full", 5)],
    )


HOURLY = {"every": 3600, "anchor": NOON.isoformat()}
LATER = {"every": 7200, "anchor": NOON.isoformat()}


@pytest.mark.parametrize("calling", [True, False])
def test_what_stands_in_a_line_that_is_not_set_up_yet_is_recorded_at_an_edit(calling: bool) -> None:
    """The line was cut out of the plan, and would have been set up when the older ones had run."""
    job = line_of([1, 1.5, 2, 3, 4, 5, 9], fires=1, started=2.2, ended=5.5)
    assert minutes(job) == [1.5, 2]
    if calling:
        job_sources.begin_planned(job, job.plan[0], at(5.6))
    for schedule, minute in ((LATER, 6), (HOURLY, 6.5)):
        job_changes.edit(job, retimed(job, schedule), at(minute), calling=calling)
    job = JobState.model_validate_json(job.model_dump_json())
    job_state.adopt(job, planning.plan(job_state.plan_input(job, at(7))), at(7))
    [row] = rows(job)
    assert (row.scheduled_time, row.last_scheduled_time) == (at(2 if calling else 1.5), at(6))
    assert (row.outcome, row.reason, row.count) == ("missed", "edited", 5 if calling else 6)
    assert (job.stats.missed, job.left_behind, minutes(job)[0]) == (row.count, [], 60)


def retimed(job: JobState, schedule: dict[str, Any]) -> JobDefinition:
    return job.definition.model_copy(update={"schedule": definition(schedule=schedule).schedule})


@pytest.mark.parametrize("batch", [50, 7, 1])
@settings(deadline=None, max_examples=40)
@given(
    down=st.integers(1, 200),
    durations=st.lists(st.sampled_from([1, 3, 7, 12, 31]), min_size=400, max_size=400),
    drops=st.lists(st.sampled_from(["", "", "", "", "", "during", "after"]), min_size=400, max_size=400),
    asked=st.dictionaries(st.integers(0, 250), st.sampled_from(["trigger", "backfill"]), max_size=90),
    grace=st.sampled_from([0, 2, 20, 400]),
    room=st.integers(1, 6),
)
def test_everything_an_outage_left_overdue_runs_once_and_in_order(
    batch: int,
    down: int,
    durations: list[int],
    drops: list[str],
    asked: dict[int, str],
    grace: int,
    room: int,
) -> None:
    """However long it was, whatever falls due or is asked for meanwhile, whatever drops the plan.

    Nothing is skipped but what fell due while a run that was in time, or came from the line, was active.
    """
    job = state(
        (),
        definition=definition(
            ends_at=at(300.5).isoformat(),
            concurrency={"policy": "queue", "max_queued": room},
            catch_up={"policy": "all", "grace": grace * 60},
        ),
        runs_errands=True,
        keeps_overdue=True,
        keeps_line=True,
    )
    now, ran, in_time = at(down + 0.5), list[datetime](), list[tuple[datetime, datetime]]()
    turns = enumerate(zip(durations, drops, strict=True))
    while job.plan or not job.plan_exhausted:
        if not job.plan:
            request = job_state.plan_input(job, now).model_copy(update={"limit": batch})
            job_state.adopt(job, planning.plan(request), now)
            continue
        number, (takes, drop) = next(turns)
        source = asked.get(number)
        if source == "trigger":
            run = job_sources.begin_manual(job, ManualRun(request=f"r{number}", at=now))
        elif source == "backfill":
            backfill.give_due_its_time(job, now)
            key = f"acme/report:b1/2026-11-01T00:{number // 60:02}:{number % 60:02}Z"
            run = job_sources.begin_backfill(job, key, Paged(at=at(-999)), 1, now)
        else:
            due = job.plan[0]
            now = max(now, due.fires_at)
            run = job_sources.begin_planned(job, due, now)
            ran.append(due.scheduled_time)
        if drop == "during":
            job_state.drop_plan(job)
        ends = now + MINUTE / TENTHS * takes
        if source or now - (run.waited_until or run.fires_at) <= MINUTE * grace:
            in_time.append((now, ends))
        now = _end(job, run, ends, started=now)
        if drop == "after":
            job_state.drop_plan(job)
    assert ran == sorted(set(ran))
    assert [one for one in ran if one <= at(down)] == [at(minute) for minute in range(1, down + 1)]
    assert (len(ran) + job.stats.skipped, job.stats.missed) == (300, 0)
    left_out = {at(minute) for minute in range(1, 301)} - set(ran)
    assert all(any(began <= one < ended for began, ended in in_time) for one in left_out)
