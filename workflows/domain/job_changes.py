"""What people ask of a job, as transitions of its state: edits, pauses, skips, manual runs, cancellations.

All of them change the state they are given. Time is an argument, and nothing waits.
"""

from __future__ import annotations

from datetime import datetime

from workflows.contracts import names
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import (
    RECENT_REQUESTS,
    AnsweredRequest,
    JobState,
    ManualRun,
    RunEnded,
    RunState,
    StopIntent,
)
from workflows.contracts.planning import PlannedOccurrence
from workflows.contracts.records import JobProgress, Record
from workflows.domain import details, job_records, job_state, stats


def remember_request(state: JobState, manual: ManualRun) -> None:
    """Remember the request of a manual run."""
    key = names.manual_key(state.tenant, state.ref, manual.request)
    answered = AnsweredRequest(id=manual.request, key=key, at=manual.at)
    state.requests = [*state.requests[-(RECENT_REQUESTS - 1) :], answered]


def beside(state: JobState, manual: ManualRun) -> JobState:
    """The state of a workflow of its own that does this manual run beside the job's loop."""
    alone = JobState(
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
    )
    job_state.begin_manual(alone, manual)
    if alone.run is not None:
        alone.run.run_number = 0  # its records say nothing of the job's progress
    return alone


def ended_beside(state: JobState, end: RunEnded) -> None:
    """A run beside the loop has ended: count it, once."""
    if all(known.key != end.last_run.key for known in state.beside):
        return
    state.beside = [known for known in state.beside if known.key != end.last_run.key]
    state.stats = stats.after_run(state.stats, end.last_run.outcome, end.ended_at)
    state.last_run = end.last_run
    state.run_number += 1
    progress = JobProgress(
        run_number=state.run_number,
        stats=state.stats,
        last_run=state.last_run,
        next_fires_at=state.plan[0].fires_at if state.plan else None,
    )
    job_records.keep(state, [Record(tenant=state.tenant, ref=state.ref, progress=progress)])


def skip(state: JobState, scheduled_time: datetime, *, skipped: bool) -> None:
    others = [instant for instant in state.skips if instant != scheduled_time]
    state.skips = sorted([*others, scheduled_time]) if skipped else others


def skip_asked(state: JobState, due: PlannedOccurrence, now: datetime) -> None:
    """The instant of an occurrence that was to be left out has come."""
    state.cursor = max(state.cursor, due.scheduled_time)
    state.skips = [instant for instant in state.skips if instant > state.cursor]
    state.plan = state.plan[1:]
    job_records.record_stretch(state, job_records.stretch_of([due]), "skipped", "asked", now)


def cancel_waiting(state: JobState, key: str, now: datetime) -> bool:
    """End an execution that no activity holds; False if ``key`` is none of those."""
    run = state.run
    if run is not None and run.occurrence.key == key:
        job_state.settle(state, run, job_state.attempt_input(state, run), "cancelled", "asked", now)
        return True
    for place, manual in enumerate(state.triggers):
        if names.manual_key(state.tenant, state.ref, manual.request) == key:
            del state.triggers[place]
            alone = beside(state, manual)
            if alone.run is not None:
                job_state.settle(
                    alone, alone.run, job_state.attempt_input(alone, alone.run), "cancelled", "asked", now
                )
                job_records.keep(state, alone.records)
            return True
    return False


def edit(state: JobState, definition: JobDefinition, at: datetime, *, calling: bool) -> None:
    """Take over a definition accepted at ``at``; ``calling``: the run there is has an activity.

    A change of when the job runs never fires for the past: what was due and not served is recorded.
    Any other edit leaves what is due to run.
    """
    run = state.run
    if details.timing(definition) != details.timing(state.definition):
        alive = run.occurrence.scheduled_time if run is not None and calling else None
        past = [one for one in state.plan if one.scheduled_time <= at and one.scheduled_time != alive]
        if past:
            job_records.record_stretch(state, job_records.stretch_of(past), "missed", "edited", at)
        if run is not None and run.occurrence.trigger == "schedule" and alive is not None:
            # it may fire yet; if its holder could be stopped, ``put_back`` takes this back
            state.scheduled_runs += state.cursor < alive <= at
        state.cursor = max(state.cursor, at)
    state.definition = definition
    state.revision += 1
    state.completed_at = None
    job_state.drop_plan(state)
    if run is not None and not calling and job_state.is_unserved(run):
        state.run = None  # planned again, or recorded just now
        if run.occurrence.trigger == "manual":
            job_state.put_back(state, run, at)


def end_pause(state: JobState, at: datetime) -> None:
    """Paused time is not missed: what fell due in it is counted by the next plan, and not run."""
    state.pause = None
    state.passed_until, state.passed_reason = at, "paused"
    state.plan = []
    state.plan_exhausted = state.plan_exhausted and state.completed_at is not None


def stop_waiting(state: JobState, run: RunState, stop: StopIntent, now: datetime) -> None:
    """A pause, a deletion or a manual run meets a run that no activity holds.

    A retry that waits ends; one that has fired and lost its lease was in flight and keeps its promise.
    """
    if run.attempt > 1 and run.deliveries == 0:
        job_state.settle(state, run, job_state.attempt_input(state, run), "dead_lettered", stop.reason, now)
    elif not job_state.is_unserved(run):
        if stop.intent == "now":
            job_state.settle(state, run, job_state.attempt_input(state, run), "cancelled", stop.reason, now)
    elif state.deleted:
        state.run = None
    elif run.occurrence.trigger == "schedule":
        job_state.put_back(state, run, now)


def active_key(state: JobState, now: datetime) -> str | None:
    """The key of the run a manual one would have to run beside; a run that is only held is not one."""
    if state.triggers:
        return names.manual_key(state.tenant, state.ref, state.triggers[0].request)
    run = state.run
    if run is None or (job_state.is_unserved(run) and run.fires_at > now):
        return None
    return run.occurrence.key
