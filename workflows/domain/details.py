"""What a job's state looks like from outside: its view, its status, its page in the Temporal UI."""

from __future__ import annotations

from typing import Any, Literal

from workflows.contracts.base import rfc3339
from workflows.contracts.definition import JobDefinition
from workflows.contracts.errands import Errand, PutOff
from workflows.contracts.job import JobState, JobView
from workflows.contracts.records import ExecutionRow, Outcome
from workflows.domain import backfill, errands
from workflows.domain.waiting import waiting_rows

Status = Literal["active", "paused", "completed", "deleted"]

BESIDE_SHOWN = 10
"""Runs beside the loop on a job's page."""
REFUSED_SHOWN = 5
"""Refused errands on a job's page."""


def status(state: JobState) -> Status:
    if state.deleted:
        return "deleted"
    if state.pause is not None:
        return "paused"
    return "completed" if state.completed_at is not None else "active"


def timing(definition: JobDefinition) -> tuple[Any, ...]:
    """The parts of a definition that decide when it runs."""
    d = definition
    return (d.schedule, d.spread, d.starts_at, d.ends_at, d.max_runs, d.except_)


def current(state: JobState, *, calling: bool) -> ExecutionRow | None:
    """The execution that is alive. ``held`` stands for everything from the hold on: a query cannot
    see whether the instant has come, so a reader compares ``fires_at`` with its own clock."""
    run = state.run
    if run is None:
        return None
    outcome: Outcome = "held" if calling else "scheduled"
    if run.attempt > run.first_attempt or run.started_at is not None:
        outcome = "retrying"
    if state.place is not None and state.place.token is None:
        outcome = "queued"
    return ExecutionRow(
        key=run.occurrence.key,
        scheduled_time=run.occurrence.scheduled_time,
        fires_at=run.fires_at,
        trigger=run.occurrence.trigger,
        outcome=outcome,
        seq=0,
        started_at=run.started_at,
        lateness_ms=run.lateness_ms,
        revision=state.revision,
    )


def view(state: JobState, *, calling: bool) -> JobView:
    return JobView(
        tenant=state.tenant,
        job=state.job,
        ref=state.ref,
        generation=state.generation,
        definition=state.definition,
        status=status(state),
        revision=state.revision,
        change=state.change,
        created_at=state.created_at,
        updated_at=state.updated_at,
        pause=state.pause,
        plan=state.plan,
        cursor=state.cursor,
        scheduled_runs=state.scheduled_runs,
        run_number=state.run_number,
        last_run=state.last_run,
        stats=state.stats,
        current=current(state, calling=calling),
        skips=state.skips,
        beside=state.beside,
        waiting=waiting_rows(state),
        backfills=[backfill.shown(one) for one in state.backfills],
        reruns=state.reruns,
    )


def _refused(errand: Errand, late: PutOff) -> str:
    return (
        f"refused {late.tries} times since {rfc3339(late.since)}, tried again at {rfc3339(late.until)}: "
        f"{errands.subject(errand)} ({late.reason})"
    )


def describe(state: JobState) -> str:
    """Markdown for the Temporal UI."""
    run, pause, last = state.run, state.pause, state.last_run
    lines = [f"**{status(state)}**, revision {state.revision}"]
    if pause is not None:
        until = f" until {rfc3339(pause.until)}" if pause.until else ""
        lines.append(f"paused since {rfc3339(pause.since)}{until}: {pause.reason or 'no reason given'}")
    if run is not None:
        what = f"attempt {run.attempt} of `{run.occurrence.key}`"
        lines.append(f"now: {what}, due {rfc3339(run.fires_at)}")
        if state.place is not None:
            has = "waits for a place" if state.place.token is None else f"has place {state.place.token}"
            lines.append(f"it {has} in the group `{state.place.group}`")
    elif state.plan and pause is None:
        lines.append(f"next: {rfc3339(state.plan[0].fires_at)}")
    lines += [f"beside: `{row.key}`" for row in state.beside[:BESIDE_SHOWN]]
    if (more := len(state.beside) - BESIDE_SHOWN) > 0:
        lines.append(f"and {more} more beside")
    if asked := len(state.triggers) + len(state.redrives):
        lines.append(f"asked for and not begun: {asked}")
    lines += [f"backfill b{one.number}: {one.started} of {one.total} begun" for one in backfill.opened(state)]
    if last is not None:
        lines.append(f"last: `{last.key}` {last.outcome}" + (f" ({last.reason})" if last.reason else ""))
    counts = state.stats
    lines.append(
        f"{counts.succeeded} of {counts.runs} runs succeeded, {counts.dead_lettered} dead-lettered, "
        f"{counts.skipped} skipped, {counts.missed} missed"
    )
    if state.records:
        lines.append(f"{len(state.records)} records wait for the database")
    lines += [_refused(errand, errand.put_off) for errand in state.errands if errand.put_off][:REFUSED_SHOWN]
    if state.errands_given_up:
        lines.append(f"{state.errands_given_up} words to other workflows were given up")
    return "\n\n".join(lines)
