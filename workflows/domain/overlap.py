"""What fell due while a run was active: skipped, or kept in line (docs/overlap.md).

Nothing wakes for it: it is counted when the run ends, which gives the same as counting at each instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from workflows.contracts.definition import Concurrency
from workflows.contracts.job import SERVED_KEPT, JobState
from workflows.domain import active as active_runs
from workflows.domain import job_records
from workflows.domain.gate import ActiveRun

_TICK = timedelta(microseconds=1)
_AT_ONCE = timedelta(seconds=5)
"""What stands in line starts so soon after the run before it; else there was no worker."""


def room(concurrency: Concurrency) -> int:
    """How many due occurrences may wait: none under ``forbid``, under ``replace`` the newest."""
    if concurrency.policy == "forbid":
        return 0
    return 1 if concurrency.policy == "replace" else concurrency.max_queued


def reason(concurrency: Concurrency) -> str:
    """Why an occurrence is skipped that finds no room."""
    return "queue_full" if concurrency.policy in ("queue", "allow") else "overlap"


def settle(state: JobState, active: ActiveRun, ended_at: datetime) -> None:
    """A run has ended: decide about everything that fell due before ``ended_at``."""
    if state.definition.concurrency.policy == "forbid":
        _skip(state, active, ended_at)
    else:
        line_up(state, active.started_at, ended_at, [active, *active_runs.beside(state)])


def overdue_first(state: JobState) -> bool:
    """What fell due while nothing ran it waits apart from the line: it does not count to ``max_queued``.

    Only where every occurrence is to be caught up; else the newest are what matters of an outage.
    """
    definition = state.definition
    orderly = definition.concurrency.policy in ("queue", "allow")
    return orderly and definition.catch_up.policy == "all" and state.keeps_overdue


def keeps_line(state: JobState) -> bool:
    """Nothing but what falls due while runs in time follow one another is ever in the line."""
    return overdue_first(state) and state.keeps_line


def line_up(state: JobState, since: datetime, now: datetime, active: Sequence[ActiveRun]) -> None:
    """Keep in line what fell due before ``now`` and waits, since ``since``, by the job's own doing.

    It cannot come too late. Where there is no room for all, the oldest are skipped.
    """
    if keeps_line(state):
        _line_up_behind_overdue(state, now, active)
        return
    if overdue_first(state) and not (state.plan and state.plan[0].fires_at >= now):
        counted_since = _counted_since(state, active)
        if counted_since is None or _keep_overdue(state, counted_since, now):
            return
        since = counted_since
    if not state.plan:
        if not state.plan_exhausted:  # dropped meanwhile: the planner knows what fell due
            _leave_line_to_planner(state, since, now)
        return
    due = len([one for one in state.plan if one.fires_at < now])
    if due == 0:
        state.blocked_since = None
        return
    since = min(since, state.plan[0].fires_at)  # a run that itself began late kept earlier ones waiting
    if due == len(state.plan) and not state.plan_exhausted:  # more may lie behind this batch
        state.plan = []
        _leave_line_to_planner(state, since, now)
        return
    state.blocked_since = state.blocked_since or since
    _cut(state, due, now)


def _line_up_behind_overdue(state: JobState, now: datetime, active: Sequence[ActiveRun]) -> None:
    """What is older than the line runs before it, and is never dropped for it."""
    if state.plan and state.plan[0].fires_at >= now:
        state.blocked_since = state.blocked_until = None
        return
    since = _in_time_since(state, now, active)
    if since is None or (state.plan_exhausted and not state.plan):
        return
    due = [one for one in state.plan if one.fires_at < now]
    older = list(takewhile(lambda one: one.fires_at < since, due))
    more = len(due) == len(state.plan) and not state.plan_exhausted  # may lie behind this batch
    if more or 0 < len(older) < len(due):
        state.plan, state.plan_exhausted = older, False
        _leave_to_be_set_up(state, since, now)
    elif not older:
        state.blocked_since, state.blocked_until, state.line_is_up = since, now, True
        _cut(state, len(due), now)


def _in_time_since(state: JobState, now: datetime, active: Sequence[ActiveRun]) -> datetime | None:
    """Since when runs in time have followed one another up to this one; None: this one was late."""
    since = _counted_since(state, active)
    if since is None:
        return None
    if state.counted_since is None or state.counted_until is None or since > state.counted_until + _AT_ONCE:
        state.counted_since = since
    state.counted_since, state.counted_until = min(since, state.counted_since), now
    return state.counted_since


def _leave_to_be_set_up(state: JobState, since: datetime, now: datetime) -> None:
    """One line at a time: what falls due apart from one that is still to be set up runs, and is in none."""
    if state.blocked_since is not None and state.blocked_until is not None and not state.line_is_up:
        if since > state.blocked_until + _AT_ONCE:
            return
        since = min(since, state.blocked_since)
    state.blocked_since, state.blocked_until, state.line_is_up = since, now, False


def _cut(state: JobState, due: int, now: datetime) -> None:
    """Of the ``due`` first ones there is no room for the oldest; the others wait."""
    concurrency = state.definition.concurrency
    full = max(due - room(concurrency), 0)
    dropped, waiting, ahead = state.plan[:full], state.plan[full:due], state.plan[due:]
    state.plan = [*(one.model_copy(update={"not_after": None, "waited": True}) for one in waiting), *ahead]
    if dropped:
        state.cursor = max(state.cursor, dropped[-1].scheduled_time)
        stretch = job_records.stretch_of(dropped)
        job_records.record_stretch(state, stretch, "skipped", reason(concurrency), now)


def _counted_since(state: JobState, active: Sequence[ActiveRun]) -> datetime | None:
    """From when on the line counts: the start of the first run that was in time. None: none was.

    The time in line is the job's own doing, so one that stood in line was in time if it began soon after.
    """
    grace, since = state.definition.catch_up.grace, list[datetime]()
    for run in active:
        left_line = run.waited_until
        if not run.planned or run.started_at - (left_line or run.fires_at) <= grace:
            at_once = left_line is not None and run.started_at - left_line <= _AT_ONCE
            since.append(left_line if left_line is not None and at_once else run.started_at)
    return min(since, default=None)


def _keep_overdue(state: JobState, since: datetime, now: datetime) -> bool:
    """Whether there are older ones than the line, which run before it: it is set up when they have.

    They are planned a batch at a time, and of the line nothing is kept but when it began and ended. What
    stands in an earlier line, from before an outage, stays where it is.
    """
    due = [one for one in state.plan if one.fires_at < now]
    earlier = list(takewhile(lambda one: one.waited, due))
    overdue = list(takewhile(lambda one: one.fires_at < since and not one.waited, due[len(earlier) :]))
    if not overdue:
        return False
    before_line = [*earlier, *overdue]
    if len(before_line) < len(due) or (len(due) == len(state.plan) and not state.plan_exhausted):
        if state.blocked_until is None:  # what it says is of the earlier line
            state.blocked_since = None
        state.plan, state.plan_exhausted = before_line, False
        _leave_line_to_planner(state, min(since, state.blocked_since or since), now)
    return True


def _leave_line_to_planner(state: JobState, since: datetime, now: datetime) -> None:
    state.blocked_since, state.blocked_until = state.blocked_since or since, now


def _skip(state: JobState, active: ActiveRun, ended_at: datetime) -> None:
    """Under ``forbid``; what the run merely held up stays in the plan."""
    grace = state.definition.catch_up.grace
    if not state.plan:
        if not state.plan_exhausted:  # dropped meanwhile: the planner knows what fell due
            _leave_to_planner(state, active, ended_at, grace)
        return
    if state.plan[0].fires_at >= ended_at:
        return
    skipped = 0
    while skipped < len(state.plan) and active.swallows(state.plan[skipped].fires_at, grace):
        skipped += 1
    if skipped == 0:
        state.blocked_since = active.started_at
        _skip_behind_line(state, active, ended_at)
    elif skipped == len(state.plan):  # more may lie behind this batch: the planner counts them all
        state.plan, state.plan_exhausted = [], False
        _leave_to_planner(state, active, ended_at, grace)
    else:
        past, state.plan = state.plan[:skipped], state.plan[skipped:]
        state.cursor = max(state.cursor, past[-1].scheduled_time)
        job_records.record_stretch(state, job_records.stretch_of(past), "skipped", "overlap", ended_at)


def _skip_behind_line(state: JobState, active: ActiveRun, ended_at: datetime) -> None:
    """A late job works off what waits for it; what falls due meanwhile is skipped as ever, or a job whose
    runs take as long as its interval would stay late for good.

    The cursor stays before the line, so that these are remembered as settled one by one.
    """
    grace = state.definition.catch_up.grace
    if not state.runs_errands:  # histories that 0.1.0 began let them all wait
        return
    past = [due for due in state.plan if due.fires_at < ended_at and active.swallows(due.fires_at, grace)][
        :SERVED_KEPT
    ]
    if past:
        gone = [due.scheduled_time for due in past]
        state.plan = [due for due in state.plan if due.scheduled_time not in gone]
        state.served = [*state.served, *gone][-SERVED_KEPT:]
        job_records.record_stretch(state, job_records.stretch_of(past), "skipped", "overlap", ended_at)


def _leave_to_planner(state: JobState, active: ActiveRun, ended_at: datetime, grace: timedelta) -> None:
    owed = state.owed_once
    was_due_before = owed is not None and owed > state.cursor and not active.swallows(owed, grace)
    if active.swallows(active.started_at, grace) and not was_due_before:
        state.passed_until, state.passed_reason = ended_at - _TICK, "overlap"
    else:
        state.blocked_since = active.started_at


def skip_first(state: JobState, now: datetime) -> None:
    """The next occurrence is due while a run that swallows it is active beside the loop."""
    due, state.plan = state.plan[0], state.plan[1:]
    state.cursor = max(state.cursor, due.scheduled_time)
    job_records.record_stretch(state, job_records.stretch_of([due]), "skipped", "overlap", now)


def wait_for(state: JobState, active: Sequence[ActiveRun], now: datetime) -> None:
    """What is due waits for runs beside the loop."""
    if state.definition.concurrency.policy == "forbid" and state.plan:
        first = state.plan[0].model_copy(update={"not_after": None, "waited": True})
        state.plan = [first, *state.plan[1:]]
    elif active:
        line_up(state, min(run.started_at for run in active), now + _TICK, active)
