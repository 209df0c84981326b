"""Rows of the execution history, composed the same way by the worker that knows them and by the workflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from workflows.contracts.attempt import AttemptInput, AttemptReport, Occurrence
from workflows.contracts.names import execution_id, stretch_key
from workflows.contracts.planning import Stretch
from workflows.contracts.records import (
    ALIVE,
    DELIVERIES_MAX,
    ENDED_PHASE,
    FINAL_PHASE,
    FIRED_PHASE,
    AttemptOutcome,
    AttemptRow,
    ExecutionRow,
    JobProgress,
    LastRun,
    Outcome,
    Record,
    Stats,
    sequence,
)
from workflows.domain import retry, stats

REPLACED = "replaced"
"""The reason with which a newer occurrence stops a run."""

LEASES_LOST = "leases_lost"
"""The reason of an end without a retry when every worker that ran it was lost."""

STOPPED: tuple[Outcome, ...] = ("cancelled", "replaced")
"""Outcomes of executions that were stopped: so was an attempt that was the last of one."""


@dataclass(frozen=True)
class Verdict:
    """What an attempt's report means for its execution."""

    outcome: Outcome
    reason: str | None = None
    retry_at: datetime | None = None

    @property
    def final(self) -> bool:
        return self.retry_at is None


def verdict(inp: AttemptInput, report: AttemptReport) -> Verdict:
    """The execution's outcome after this attempt: final, or ``retrying`` with the next due instant."""
    if report.outcome == "succeeded":
        return Verdict("succeeded")
    if report.outcome == "cancelled":
        return Verdict(stopped(report.reason), report.reason)
    decision = retry.after_failure(
        inp.definition,
        attempt=inp.attempt,
        retryable=report.retryable,
        reason=report.reason,
        now=report.ended_at,
        started_at=report.started_at,
        retry_after_s=report.retry_after_s,
        execution_id=execution_id(inp.occurrence.key, inp.attempt),
        first_attempt=inp.first_attempt,
    )
    if isinstance(decision, retry.RetryAt):
        return Verdict("retrying", None, decision.at)
    return Verdict("dead_lettered", decision.reason)


def stopped(reason: str | None) -> Outcome:
    """The outcome of an execution that was stopped wherever it was, for this reason."""
    return "replaced" if reason == REPLACED else "cancelled"


def running_record(inp: AttemptInput, *, delivery: int, started_at: datetime, at: datetime,
                   lateness_ms: int | None, worker: str) -> Record:  # fmt: skip
    """The row of a run that has just fired (``at``), so that lists show it among those alive."""
    seq = sequence(inp.attempt, delivery, FIRED_PHASE)
    return Record(
        tenant=inp.tenant,
        ref=inp.ref,
        execution=_execution(inp, "running", seq, started_at=started_at, lateness_ms=lateness_ms),
        attempt=AttemptRow(
            attempt=inp.attempt,
            delivery=delivery,
            execution_id=execution_id(inp.occurrence.key, inp.attempt),
            outcome="running",
            seq=seq,
            started_at=at,
            worker=worker,
            revision=inp.revision,
        ),
    )


def attempt_record(inp: AttemptInput, report: AttemptReport, found: Verdict) -> Record:
    """The rows of an attempt that has ended, and the job's progress if its execution has too.

    Whoever finds that all leases were lost has made no delivery of its own. Its word stands over that of
    the last holder, which may have written how its delivery ended when nobody counted on it any more.
    """
    if report.outcome in ("late", "returned"):
        raise ValueError(f"an attempt that was {report.outcome} leaves no row")
    phase = FINAL_PHASE if report.reason == LEASES_LOST else ENDED_PHASE
    seq = sequence(inp.attempt, report.deliveries, phase)
    attempt = AttemptRow(
        attempt=inp.attempt,
        delivery=report.deliveries,
        execution_id=execution_id(inp.occurrence.key, inp.attempt),
        outcome=report.outcome,
        seq=seq,
        started_at=report.fired_at,
        ended_at=report.ended_at,
        status_code=report.status_code,
        error=report.error,
        answer=report.answer,
        worker=report.worker,
        revision=inp.revision,
    )
    execution = _execution(
        inp,
        found.outcome,
        seq,
        started_at=report.started_at,
        ended_at=report.ended_at if found.final else None,
        lateness_ms=report.lateness_ms,
        reason=found.reason,
    )
    return Record(
        tenant=inp.tenant,
        ref=inp.ref,
        execution=execution,
        attempt=attempt,
        progress=_progress(inp, execution) if found.final else None,
    )


def settled_record(inp: AttemptInput, *, outcome: Outcome, reason: str | None,
                   started_at: datetime | None, ended_at: datetime) -> Record:  # fmt: skip
    """The job workflow's own word on how an execution ended; it stands over the worker's.

    Over those of deliveries too that the workflow never heard of: an attempt that is cancelled while it has
    no holder comes back without a word of the lost one.
    """
    execution = _execution(
        inp,
        outcome,
        sequence(inp.attempt, DELIVERIES_MAX, FINAL_PHASE),
        started_at=started_at,
        ended_at=ended_at,
        reason=reason,
    )
    return Record(tenant=inp.tenant, ref=inp.ref, execution=execution, progress=_progress(inp, execution))


def lost_attempt(inp: AttemptInput, outcome: AttemptOutcome, *, deliveries: int, worker: str,
                 at: datetime) -> AttemptRow:  # fmt: skip
    """The row of an attempt whose last lease was lost; ``at`` is when that was seen."""
    return AttemptRow(
        attempt=inp.attempt,
        delivery=max(deliveries, 1),
        execution_id=execution_id(inp.occurrence.key, inp.attempt),
        outcome=outcome,
        seq=sequence(inp.attempt, deliveries, FINAL_PHASE),
        ended_at=at,
        error="the lease was lost: its worker died, or was cut off, while the target ran",
        worker=worker,
        revision=inp.revision,
    )


def stretch_row(tenant: str, ref: str, revision: int, stretch: Stretch, *, outcome: Outcome,
                reason: str | None, at: datetime) -> ExecutionRow:  # fmt: skip
    """One row for occurrences that did not run; ``at`` is when that was decided."""
    return ExecutionRow(
        key=stretch_key(tenant, ref, outcome, stretch.first),
        scheduled_time=stretch.first,
        fires_at=stretch.first,
        outcome=outcome,
        seq=sequence(0, 0, FINAL_PHASE),
        ended_at=at,
        reason=reason,
        count=stretch.count,
        last_scheduled_time=stretch.last,
        revision=revision,
    )


def longer(row: ExecutionRow, following: ExecutionRow) -> ExecutionRow:
    """The row of a stretch, grown by the one that follows it."""
    return row.model_copy(
        update={
            "count": row.count + following.count,
            "last_scheduled_time": following.last_scheduled_time,
            "ended_at": following.ended_at,
            "seq": row.seq + 1,
        }
    )


def last_run(execution: ExecutionRow) -> LastRun:
    """How a job's answer shows its last run."""
    return LastRun(
        key=execution.key,
        scheduled_time=execution.scheduled_time,
        trigger=execution.trigger,
        outcome=execution.outcome,
        started_at=execution.started_at,
        ended_at=execution.ended_at,
        reason=execution.reason,
    )


def left_out(occurrence: Occurrence, at: datetime, *, paused: bool = False) -> LastRun:
    """The end of a run beside its job that did not run at all: it came too late, or a pause kept it back."""
    return LastRun(
        key=occurrence.key,
        scheduled_time=occurrence.scheduled_time,
        trigger=occurrence.trigger,
        outcome="skipped" if paused else "missed",
        reason="paused" if paused else None,
        ended_at=at,
    )


def _execution(inp: AttemptInput, outcome: Outcome, seq: int, *, started_at: datetime | None,
               ended_at: datetime | None = None, lateness_ms: int | None = None,
               reason: str | None = None) -> ExecutionRow:  # fmt: skip
    return ExecutionRow(
        key=inp.occurrence.key,
        scheduled_time=inp.occurrence.scheduled_time,
        fires_at=inp.occurrence.fires_at,
        trigger=inp.occurrence.trigger,
        outcome=outcome,
        seq=seq,
        started_at=started_at,
        ended_at=ended_at,
        lateness_ms=lateness_ms,
        reason=reason,
        revision=inp.revision,
    )


def _progress(inp: AttemptInput, execution: ExecutionRow) -> JobProgress | None:
    """None for a run beside the loop (number 0): the job itself tells what that one moves."""
    if inp.run_number == 0:
        return None
    ended_at = execution.ended_at or execution.fires_at
    counts: Stats = stats.after_run(inp.stats, execution.outcome, ended_at)
    return JobProgress(
        run_number=inp.run_number,
        stats=counts,
        last_run=last_run(execution),
        next_fires_at=inp.next_fires_at,
    )


def with_ends(execution: ExecutionRow, attempts: Sequence[AttemptRow]) -> list[AttemptRow]:
    """The attempts of an execution, none of them running still when it has ended.

    A holder that was stopped between two leases leaves its last word, that it had fired. The database puts
    such rows right when it stores the end; those of 0.2.0 and before stand there as they were.
    """
    if execution.outcome in ALIVE:
        return list(attempts)

    def outcome(row: AttemptRow) -> AttemptOutcome:
        was_last = execution.seq < sequence(row.attempt + 1, 0, 0)
        return "cancelled" if was_last and execution.outcome in STOPPED else "failed"

    return [
        row.model_copy(update={"outcome": outcome(row), "ended_at": execution.ended_at})
        if row.outcome == "running"
        else row
        for row in attempts
    ]
