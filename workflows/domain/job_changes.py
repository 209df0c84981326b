"""What people ask of a job, as transitions of its state: edits, pauses, skips, manual runs, cancellations.

All of them change the state they are given. Time is an argument, and nothing waits.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from workflows.contracts import names
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import (
    RECENT_REQUESTS,
    AnsweredRequest,
    BesideRun,
    JobState,
    ManualRun,
    RunEnded,
    RunState,
    Standing,
    StopIntent,
)
from workflows.contracts.planning import LeftBehind, PlannedOccurrence, Stretch
from workflows.contracts.records import (
    DELIVERIES_MAX,
    FINAL_PHASE,
    ExecutionRow,
    JobProgress,
    Record,
    sequence,
)
from workflows.contracts.schedule import PAST_ALLOWED
from workflows.domain import (
    backfill,
    details,
    errands,
    history,
    incidents,
    job_records,
    job_sources,
    job_state,
    letters,
    stats,
    unwritten,
)
from workflows.domain.active import is_held, is_planned, is_unserved, obeys_pause
from workflows.domain.waiting import waiting_rows

STOP_WAIT = timedelta(seconds=2)
"""How long a stop waits for the worker's word before it answers ``stopping``."""
_TICK = timedelta(microseconds=1)


def remember_request(state: JobState, manual: ManualRun) -> None:
    """Remember the request of a manual run."""
    key = names.manual_key(state.tenant, state.ref, manual.request)
    answered = AnsweredRequest(id=manual.request, key=key, at=manual.at)
    state.requests = [*state.requests[-(RECENT_REQUESTS - 1) :], answered]


def ended_beside(state: JobState, end: RunEnded) -> None:
    """A run beside the loop has ended: count it, once. It is told again when its records are written."""
    unwritten.remember(state, end)
    row = next((known for known in state.beside if known.key == end.last_run.key), None)
    if row is None:
        return
    state.beside = [known for known in state.beside if known.key != end.last_run.key]
    if end.last_run.outcome == "skipped" and row.backfill is not None:
        backfill.give_back(state, row)
        return
    backfill.ended(state, row.backfill, end.last_run.outcome, end.ended_at)
    used = names.first_attempt_of(row.name) + state.definition.retry.max_attempts - 1
    backfill.happened(state, row.key, end.last_run.outcome, used, end.ended_at)
    letters.after_beside(state, end)
    if end.last_run.outcome in ("missed", "skipped"):  # it came too late, or met a pause, and did not run
        state.stats = stats.after_stretch(state.stats, end.last_run.outcome, 1)
        state.scheduled_runs -= 1
    else:
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
    if incidents.ended_beside(state, end):
        job_records.publish(state)


def skip(state: JobState, scheduled_time: datetime, *, skipped: bool) -> None:
    others = [instant for instant in state.skips if instant != scheduled_time]
    state.skips = sorted([*others, scheduled_time]) if skipped else others


def skip_asked(state: JobState, due: PlannedOccurrence, now: datetime) -> None:
    """The instant of an occurrence that was to be left out has come."""
    state.cursor = max(state.cursor, due.scheduled_time)
    state.skips = [instant for instant in state.skips if instant > state.cursor]
    state.plan = state.plan[1:]
    job_records.record_stretch(state, job_records.stretch_of([due]), "skipped", "asked", now)


def cancel_waiting(state: JobState, key: str, now: datetime, reason: str = "asked") -> bool:
    """End an execution that no activity holds; False if ``key`` is none of those."""
    run = state.run
    if run is not None and run.occurrence.key == key:
        job_state.settle(state, run, job_state.attempt_input(state, run), "cancelled", reason, now)
        return True
    for place, manual in enumerate(state.triggers):
        if names.manual_key(state.tenant, state.ref, manual.request) == key:
            del state.triggers[place]
            aside = job_sources.alone(state)
            _settle_aside(state, aside, job_sources.begin_manual(aside, manual), reason, now)
            return True
    for place, queued in enumerate(state.redrives):
        if queued.occurrence.key == key:
            del state.redrives[place]
            aside = job_sources.alone(state)
            _settle_aside(state, aside, job_sources.begin_redrive(aside, queued), reason, now)
            return True
    if (due := in_line(state, key, now)) is not None:
        skip(state, due.scheduled_time, skipped=True)
        return True
    return False


def in_line(state: JobState, key: str, now: datetime) -> PlannedOccurrence | None:
    """The occurrence with this key, if it is due and waits behind other runs of the job."""
    for due in state.plan:
        if due.fires_at <= now and names.scheduled_key(state.tenant, state.ref, due.scheduled_time) == key:
            return due
    return None


def _settle_aside(state: JobState, aside: JobState, run: RunState, reason: str, now: datetime) -> None:
    """Record the end of a run that never began: the counts of the job's runs do not move."""
    job_sources.set_beside(run)
    job_state.settle(aside, run, job_state.attempt_input(aside, run), "cancelled", reason, now)
    job_records.keep(state, aside.records)
    errands.add(state, *aside.errands)


def delete(state: JobState, now: datetime) -> None:
    """Nothing begins any more; what has been accepted and not begun is recorded as cancelled."""
    state.deleted = True
    backfill.cancel_all(state, "deleted", now)
    for row in waiting_rows(state):
        cancel_waiting(state, row.key, now, "deleted")


def edit(state: JobState, definition: JobDefinition, at: datetime, *, calling: bool,
         reaches_back: bool = False) -> None:  # fmt: skip
    """Take over a definition accepted at ``at``; ``calling``: the run there is has an activity.

    A change of when the job runs never fires for the past: what was due and not served is recorded.
    Only a one-off that it moves into the last minute runs at once, where it ``reaches_back``, as one that
    is created so. Any other edit leaves what is due to run, and its turn to a run that waits for its group.
    """
    run = state.run
    moves = details.timing(definition) != details.timing(state.definition)
    if moves:
        once = _once(state, definition, at) if reaches_back else None
        backfill.keep_timing(state)
        alive = run.occurrence.scheduled_time if run is not None and calling else None
        beside = {row.scheduled_time for row in state.beside if is_planned(row.trigger)}
        past = [
            one
            for one in state.plan
            if one.scheduled_time <= at and one.scheduled_time not in {alive, once, *beside}
        ]
        if past:
            job_records.record_stretch(state, job_records.stretch_of(past), "missed", "edited", at)
        lives = run is not None and is_planned(run.occurrence.trigger) and (calling or not is_unserved(run))
        mine = [run.occurrence.scheduled_time] if run is not None and lives else []
        _leave_behind(state, at, {*beside, *mine} if once is None else {*beside, *mine, once})
        if run is not None and is_planned(run.occurrence.trigger) and alive is not None:
            # it may fire yet; if its holder could be stopped, ``put_back`` takes this back
            state.scheduled_runs += state.cursor < alive <= at
        state.cursor = max(state.cursor, at)
        state.owed_once = once
        if once is not None and once <= at:
            _reach_back(state, once, at, alive=mine)
    watched = state.definition.alerts.no_success_for
    state.definition = definition
    state.revision += 1
    incidents.edited(state, watched, at)
    state.completed_at = None
    job_state.drop_plan(state)
    if run is not None and not calling and is_unserved(run) and not _keeps_turn(state, run, moves=moves):
        state.run = None  # planned again, or recorded just now
        if not is_planned(run.occurrence.trigger):
            job_sources.put_back(state, run, at)


def _once(state: JobState, definition: JobDefinition, at: datetime) -> datetime | None:
    """The only instant of the job as an edit makes it, if it is to have its run still.

    One that has passed is, for a minute, where it is the edit that names it.
    """
    once = definition.schedule.at
    taken = once in state.served or any(row.scheduled_time == once for row in state.beside)
    if once is None or taken:
        return None
    just_named = definition.schedule != state.definition.schedule and at - once <= PAST_ALLOWED
    return once if once > at or just_named else None


def _reach_back(state: JobState, once: datetime, at: datetime, alive: list[datetime]) -> None:
    """Let the planner find ``once``, which has passed, unless a later occurrence is due and under way: should
    that come back unsent, the cursor says that it was left out."""
    if any(once < one <= at for one in alive):
        state.owed_once = None
        job_records.record_stretch(state, Stretch(count=1, first=once, last=once), "missed", "edited", at)
    elif once not in alive:
        state.cursor = once - timedelta(seconds=1)


def _keeps_turn(state: JobState, run: RunState, *, moves: bool) -> bool:
    """A run that waits for its group goes on waiting there, unless it is decided anew whether it runs."""
    decided_anew = moves and (is_planned(run.occurrence.trigger) or not state.as_of_0_4)
    return run.group_since is not None and not decided_anew


def _leave_behind(state: JobState, at: datetime, alive: set[datetime]) -> None:
    """The plan does not reach as far as ``at``: only the planner can count what fell due behind it.

    A line that is still to be set up, a run that lasted longer than the plan, a plan that was dropped.
    """
    definition, after = state.definition, state.plan[-1].scheduled_time if state.plan else state.cursor
    used_up = definition.max_runs is not None and state.scheduled_runs >= definition.max_runs
    if state.plan_exhausted or used_up:
        return
    left = LeftBehind(
        timing=backfill.timing_of(definition),
        after=max(after, state.cursor),
        until=at,
        settled=sorted({*state.served, *alive}),
        reason="edited",
    )
    passed_until = at if state.pause is not None else state.passed_until
    if passed_until is not None and passed_until > left.after:
        passed = {
            "until": min(passed_until, at),
            "outcome": "skipped",
            "reason": "paused" if state.pause is not None else state.passed_reason,
        }
        state.left_behind = [*state.left_behind, left.model_copy(update=passed)]
        left = left.model_copy(update={"after": passed_until})
    if left.after < at:
        state.left_behind = [*state.left_behind, left]


def end_pause(state: JobState, at: datetime) -> None:
    """Paused time is not missed: what fell due in it is counted by the next plan, and not run.

    A pause that has an end is over then, though a resume may come before the job has seen it; what is due
    at that very instant runs.
    """
    until = state.pause.until if state.pause is not None else None
    if until is not None and until <= at:
        at = until
    state.pause = None
    state.passed_until, state.passed_reason = at - _TICK if at == until else at, "paused"
    state.plan, state.blocked_since, state.blocked_until = [], None, None
    state.plan_exhausted = state.plan_exhausted and state.completed_at is not None
    incidents.resumed(state, at)


def stop_waiting(state: JobState, run: RunState, stop: StopIntent, now: datetime) -> None:
    """A pause, a deletion or a manual run meets a run that no activity holds.

    A retry that waits ends; one that has fired and lost its lease was in flight and keeps its promise.
    """
    if run.attempt > run.first_attempt and run.deliveries == 0:
        job_state.settle(state, run, job_state.attempt_input(state, run), "dead_lettered", stop.reason, now)
    elif not is_unserved(run):
        if stop.intent == "now":
            outcome = history.stopped(stop.reason)
            job_state.settle(state, run, job_state.attempt_input(state, run), outcome, stop.reason, now)
    elif state.deleted and is_planned(run.occurrence.trigger) and run.group_since is None:
        state.run = None
    elif state.deleted:
        cancel_waiting(state, run.occurrence.key, now, "deleted")
    elif is_planned(run.occurrence.trigger) or run.backfill is not None:
        job_sources.put_back(state, run, now)


def heard(state: JobState, told: Standing, now: datetime, *, calling: bool) -> StopIntent | None:
    """A run beside the loop hears how its job stands, and takes it over.

    ``calling``: an activity has it; returned is how that is to be stopped. What no activity has is settled
    as the job's own run would be. No pause reaches what somebody asked for by itself.
    """
    run = state.run
    obeys = run is not None and obeys_pause(run.occurrence.trigger)
    state.pause, state.deleted = told.pause if obeys else None, told.deleted
    if told.definition is not None:
        state.definition, state.revision = told.definition, told.revision
    if run is None:
        return None
    if state.deleted or state.pause is not None:
        stop = StopIntent(intent="if_held", reason="deleted" if state.deleted else "paused")
    elif told.definition is not None and run.attempt > run.first_attempt:
        stop = StopIntent(intent="if_held", reason="edited")
    else:
        return None
    if calling:
        return stop
    if state.deleted and is_unserved(run):
        cancel_waiting(state, run.occurrence.key, now, "deleted")
    elif stop.reason != "edited":
        stop_waiting(state, run, stop, now)
    return None


def replace(state: JobState, run: RunState, now: datetime) -> None:
    """A newer occurrence meets a run that no activity holds: it waited for a retry or its group."""
    job_state.settle(state, run, job_state.attempt_input(state, run), "replaced", history.REPLACED, now)


def active_key(state: JobState, now: datetime) -> str | None:
    """The key of the run a manual one would have to run beside; a run that is only held is not one."""
    run = state.run
    if run is not None and not is_held(run, now):
        return run.occurrence.key
    waiting = [*waiting_rows(state), *(row for row in state.beside if not row.forced)]
    return waiting[0].key if waiting else None


def unsure(state: JobState, row: BesideRun, run: RunState) -> None:
    """Whether this run beside the loop has been started is not known: it counts as active."""
    _update_beside(state, row, unsure=run)


def stop_when_sure(state: JobState, row: BesideRun, reason: str) -> bool:
    """Remember to stop a run beside the loop that may not have been started yet; False: it is sure."""
    known = _update_beside(state, row)
    if known is None or known.unsure is None:
        return False
    _update_beside(state, row, stop=reason)
    return True


def stop_of_unsure(state: JobState, row: BesideRun) -> str | None:
    """Why a run beside the loop is to be stopped that may not have been started yet."""
    known = next((one for one in state.beside if (one.key, one.name) == (row.key, row.name)), None)
    return None if known is None or known.unsure is None else known.stop


def sure(state: JobState, row: BesideRun) -> BesideRun | None:
    """This run beside the loop has been started, and is answered; None: it has told its end by now."""
    return _update_beside(state, row, unsure=None)


def _update_beside(state: JobState, row: BesideRun, **fields: Any) -> BesideRun | None:
    """The row as it is now. An earlier run of the same occurrence has the same key, and another name."""
    found = None
    for place, known in enumerate(state.beside):
        if (known.key, known.name) == (row.key, row.name):
            found = known.model_copy(update=fields)
            state.beside = [*state.beside[:place], found, *state.beside[place + 1 :]]
    return found


def forget_beside(state: JobState, row: BesideRun, now: datetime) -> None:
    """A run beside the loop is gone, and nothing more will be heard of it."""
    if row in state.beside:
        state.beside = [known for known in state.beside if known.key != row.key]
        backfill.ended(state, row.backfill, "cancelled", now)


def lost_beside(state: JobState, row: BesideRun, now: datetime) -> None:
    """A run beside the loop is gone without a word: somebody terminated its workflow."""
    if row not in state.beside:
        return
    forget_beside(state, row, now)
    used = names.first_attempt_of(row.name) + state.definition.retry.max_attempts - 1
    seq = sequence(
        used, DELIVERIES_MAX, FINAL_PHASE
    )  # later than any word of a run that did not tell how far it came
    ended = row.model_copy(
        update={"outcome": "cancelled", "reason": "terminated", "ended_at": now, "seq": seq}
    )
    letters.lost_beside(state, row, used, now)
    execution = ExecutionRow.model_validate(ended.model_dump())
    job_records.keep(state, [Record(tenant=state.tenant, ref=state.ref, execution=execution)])
