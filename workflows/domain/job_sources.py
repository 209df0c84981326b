"""Where a job's next run comes from: the schedule, triggers, redrives and reruns, backfills.

Each source gives the loop its run here and takes back one that was not served; time is an argument.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from workflows.contracts import names
from workflows.contracts.attempt import Occurrence
from workflows.contracts.backfill import Paged
from workflows.contracts.job import SERVED_KEPT, BesideRun, JobState, ManualRun, QueuedRun, RunState
from workflows.contracts.planning import PlannedOccurrence, Stretch
from workflows.contracts.records import Outcome
from workflows.domain import backfill, job_records
from workflows.domain.active import is_paused, is_planned
from workflows.domain.waiting import manual_occurrence


def begin_planned(state: JobState, due: PlannedOccurrence, now: datetime) -> RunState:
    """Take a planned occurrence; one that is later than its grace by no doing of ours is a catch-up."""
    misfired = not due.waited and now - due.fires_at > state.definition.catch_up.grace
    occurrence = Occurrence(
        key=names.scheduled_key(state.tenant, state.ref, due.scheduled_time),
        trigger="catch_up" if misfired else "schedule",
        scheduled_time=due.scheduled_time,
        fires_at=due.fires_at,
    )
    return _begin(state, occurrence, not_after=due.not_after, waited_until=now if due.waited else None)


def begin_manual(state: JobState, manual: ManualRun) -> RunState:
    return _begin(state, manual_occurrence(state, manual), forced=manual.forced)


def begin_redrive(state: JobState, queued: QueuedRun) -> RunState:
    return _begin(
        state,
        queued.occurrence,
        fires_at=queued.at,
        attempt=queued.attempt,
        first_attempt=queued.attempt,
        story=queued.story,
        forced=queued.forced,
    )


def begin_backfill(state: JobState, key: str, entry: Paged, number: int, now: datetime) -> RunState:
    """Take an occurrence of the past; it is due now, and was never on time."""
    occurrence = Occurrence(key=key, trigger="backfill", scheduled_time=entry.at, fires_at=now)
    return _begin(state, occurrence, attempt=entry.attempt, first_attempt=entry.attempt, backfill=number)


def _begin(state: JobState, occurrence: Occurrence, **fields: Any) -> RunState:
    state.run_number += 1
    state.turns += 1
    run = RunState.model_validate(
        {
            "occurrence": occurrence,
            "fires_at": occurrence.fires_at,
            "run_number": state.run_number,
            **fields,
        }
    )
    state.run = run
    return run


def put_back(state: JobState, run: RunState, now: datetime) -> None:
    """The run was not served: its source decides about it again.

    An occurrence that an edit, or a run beside it, went past meanwhile has no instant to wait for any more,
    and is recorded.
    """
    state.run = None
    occurrence = run.occurrence
    if occurrence.trigger == "manual":
        request = names.suffix_of(occurrence.key)
        manual = ManualRun(request=request, at=occurrence.fires_at, body=occurrence.body, forced=run.forced)
        state.triggers.insert(0, manual)
    elif occurrence.trigger in ("redrive", "rerun"):
        queued = QueuedRun(
            occurrence=occurrence,
            attempt=run.attempt,
            story=run.story,
            at=run.fires_at,
            forced=run.forced,
        )
        state.redrives.insert(0, queued)
    elif run.backfill is not None:
        backfill.put_back(state, run)
    elif is_passed(state, run) and is_paused(state, now):
        leave_out(state, run, "paused", now, "skipped")
    elif is_passed(state, run):
        leave_out(state, run, "edited", now)


def is_passed(state: JobState, run: RunState) -> bool:
    """The plan has gone past this occurrence: it runs now, or it is left out for good."""
    occurrence = run.occurrence
    return is_planned(occurrence.trigger) and occurrence.scheduled_time <= state.cursor


def leave_out(state: JobState, run: RunState, reason: str | None, now: datetime,
              outcome: Outcome = "missed") -> None:  # fmt: skip
    """An occurrence that counted as served does not run after all."""
    at = run.occurrence.scheduled_time
    state.run = None
    state.scheduled_runs -= 1
    state.served = [one for one in state.served if one != at]
    job_records.record_stretch(state, Stretch(count=1, first=at, last=at), outcome, reason, now)


def mark_served(state: JobState, scheduled_time: datetime) -> None:
    """Move the cursor: this occurrence of the schedule has its run, whatever becomes of it."""
    if state.cursor >= scheduled_time:
        return
    if state.owed_once is None or not state.cursor < state.owed_once < scheduled_time:
        state.cursor = scheduled_time
    elif scheduled_time in state.served:
        return
    state.served = [*state.served[1 - SERVED_KEPT :], scheduled_time]
    state.scheduled_runs += 1
    planned = any(due.scheduled_time == scheduled_time for due in state.plan)
    state.plan = [due for due in state.plan if due.scheduled_time > state.cursor]
    if planned and state.runs_errands:
        settle_behind(state)


def settle_behind(state: JobState) -> None:
    """Move the cursor over what was settled while older occurrences waited, up to the next planned."""
    ahead = state.plan[0].scheduled_time if state.plan else None
    behind = [one for one in state.served if ahead is None or one < ahead]
    state.cursor = max([state.cursor, *behind])


def serve_run(state: JobState) -> None:
    """The plan is about to go past the run there is, which is due: it counts as served."""
    run = state.run
    if run is not None and is_planned(run.occurrence.trigger):
        mark_served(state, run.occurrence.scheduled_time)


# -- runs beside the loop --------------------------------------------------------------------------


def alone(state: JobState) -> JobState:
    """The state of a workflow of its own for one run beside the job's loop; its run is yet to begin."""
    return JobState(
        tenant=state.tenant,
        job=state.job,
        ref=state.ref,
        generation=state.generation,
        definition=state.definition,
        revision=state.revision,
        created_at=state.created_at,
        updated_at=state.updated_at,
        cursor=state.cursor,
        plan_exhausted=True,
        hints=state.hints,
        tzdata=state.tzdata,
        runs_errands=True,
        as_of_0_4=True,
    )


def alone_for(state: JobState, due: PlannedOccurrence, now: datetime) -> JobState:
    """The same, its run begun. It counts as served there, where no planner decides about it again."""
    aside = alone(state)
    begin_planned(aside, due, now)
    mark_served(aside, due.scheduled_time)
    return aside


def alone_again(state: JobState, run: RunState, stop: str | None = None) -> JobState:
    """The same for a run that may have been started before; should it not, it has the present definition.

    ``stop``: why it is to be stopped, in either case.
    """
    aside = alone(state)
    aside.run = run if stop is None else run.model_copy(update={"stop": stop})
    serve_run(aside)
    return aside


def set_beside(run: RunState) -> None:
    """Make a run just begun one beside the loop: its records say nothing of the job's progress."""
    run.run_number = 0


def beside_row(state: JobState, run: RunState, now: datetime | None = None) -> BesideRun:
    """``now``: when the run is begun."""
    return BesideRun(
        key=run.occurrence.key,
        scheduled_time=run.occurrence.scheduled_time,
        fires_at=run.fires_at,
        trigger=run.occurrence.trigger,
        outcome="scheduled",
        seq=0,
        revision=state.revision,
        forced=run.forced,
        name=names.run_name(run.occurrence.key, run.first_attempt, run.backfill),
        backfill=run.backfill,
        begun_at=now if state.keeps_overdue else None,
        waited_until=run.waited_until,
    )
