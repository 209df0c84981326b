"""What was overdue before anything ran takes no room in the line, and runs once and in order."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workflows.domain.states import (
    MINUTE,
    NOON,
    at,
    definition,
    minutes,
    rows,
    run_ends,
    state,
    told,
)
from workflows.contracts.backfill import Paged
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import JobState, ManualRun
from workflows.contracts.planning import Stretch
from workflows.domain import backfill, job_changes, job_sources, job_state, planning

TENTHS = 10
"""Durations are tenths of a minute."""
GRACE = timedelta(seconds=90)


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
    run_ends(job, run, at(ended), started=at(started))
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
        now = run_ends(job, run, ends, started=now)
        if drop == "after":
            job_state.drop_plan(job)
    assert ran == sorted(set(ran))
    assert [one for one in ran if one <= at(down)] == [at(minute) for minute in range(1, down + 1)]
    assert (len(ran) + job.stats.skipped, job.stats.missed) == (300, 0)
    left_out = {at(minute) for minute in range(1, 301)} - set(ran)
    assert all(any(began <= one < ended for began, ended in in_time) for one in left_out)
