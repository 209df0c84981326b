"""Counting at a run's end gives what deciding at each instant would have given."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workflows.domain.states import MINUTE, NOON, at, definition, rows, state
from workflows.contracts.job import JobState, RunState
from workflows.domain import job_sources, job_state, overlap, planning
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


def at_the_end(policy: str, room: int, durations: list[int], batch: int) -> tuple[Came, JobState]:
    """The job's way: nothing wakes during a run, and the planner is asked for ``batch`` at a time."""
    job = state(
        (),
        definition=definition(
            concurrency={"policy": policy, "max_queued": room},
            max_runs=None,
            ends_at=at(OCCURRENCES).isoformat(),
            catch_up={"policy": "latest", "grace": GRACE.total_seconds()},
        ),
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
@pytest.mark.parametrize("policy", ["forbid", "queue"])
@given(
    room=st.integers(1, 6),
    durations=st.lists(
        st.sampled_from([2, 9, 10, 11, 25, 42, 97]),
        min_size=OCCURRENCES + 1,
        max_size=OCCURRENCES + 1,
    ),
)
def test_the_same_runs_and_the_same_skips(policy: str, batch: int, room: int, durations: list[int]) -> None:
    came, job = at_the_end(policy, room, durations, batch)
    expected = each_instant(policy, room, durations)
    assert came.ran == expected.ran
    assert sorted(came.skipped) == sorted(expected.skipped)
    assert (job.stats.skipped, job.stats.missed) == (len(expected.skipped), 0)
