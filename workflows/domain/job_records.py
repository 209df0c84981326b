"""The records of a job that the database has not confirmed, within their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from workflows.contracts.job import (
    JobState,
)
from workflows.contracts.planning import PlannedOccurrence, Stretch
from workflows.contracts.records import ExecutionRow, JobRow, Outcome, Record
from workflows.domain import backlog, details, history, incidents, stats


def keep(state: JobState, records: Sequence[Record]) -> None:
    all_of_them = len(state.records) + len(records)
    state.records = backlog.add(state.records, records)
    if len(state.records) < all_of_them:
        state.missed = None  # its row may have been merged, and must not be counted twice


def confirm(state: JobState, stored: Sequence[Record]) -> None:
    state.records = [record for record in state.records if record not in stored]


def record_stretch(state: JobState, stretch: Stretch, outcome: Outcome, reason: str | None,
                   at: datetime) -> None:  # fmt: skip
    """One row for the stretch; what is missed right after what was missed belongs to the same row."""
    state.stats = stats.after_stretch(state.stats, outcome, stretch.count)
    row = history.stretch_row(
        state.tenant, state.ref, state.revision, stretch, outcome=outcome, reason=reason, at=at
    )
    if outcome == "missed" and not _lies_before(stretch, state.missed):
        if state.missed is not None and state.missed.reason == reason:
            shorter, row = state.missed, history.longer(state.missed, row)
            state.records = [record for record in state.records if record.execution != shorter]
        state.missed = row
    incidents.stretch(state, row, stretch.count, at)
    keep(state, [Record(tenant=state.tenant, ref=state.ref, execution=row)])


def _lies_before(stretch: Stretch, missed: ExecutionRow | None) -> bool:
    """A run that was taken before the plan went past it may turn out to be too late after what follows it:
    a row of its own, for a stretch reads from its first to its last."""
    return missed is not None and stretch.first <= (missed.last_scheduled_time or missed.scheduled_time)


def publish(state: JobState) -> None:
    """Count a change of what the index shows, and keep its row."""
    state.change += 1
    record_job(state)


def record_job(state: JobState) -> None:
    """The index row after a change that is already counted; it replaces an older one that waits."""
    state.records = [record for record in state.records if record.job is None]
    row = JobRow(
        job=state.job,
        generation=state.generation,
        revision=state.revision,
        change=state.change,
        status=details.status(state),
        definition=state.definition,
        pause=state.pause,
        created_at=state.created_at,
        updated_at=state.updated_at,
        next_fires_at=state.plan[0].fires_at if state.plan and state.pause is None else None,
        run_number=state.run_number,
    )
    keep(state, [Record(tenant=state.tenant, ref=state.ref, job=row)])


def stretch_of(due: Sequence[PlannedOccurrence]) -> Stretch:
    return Stretch(count=len(due), first=due[0].scheduled_time, last=due[-1].scheduled_time)
