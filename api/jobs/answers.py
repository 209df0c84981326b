"""The shapes of answers, and how they are made from the contracts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.problems import Problem
from workflows.contracts.base import Instant
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import InFlight
from workflows.contracts.names import opaque_id
from workflows.contracts.records import (
    AttemptOutcome,
    AttemptRow,
    ExecutionRow,
    LastRun,
    Outcome,
    Pause,
    Stats,
    Trigger,
)
from workflows.domain import history

READ_ONLY = frozenset(
    {
        "tenant", "status", "revision", "created_at", "updated_at", "pause",
        "next_runs", "skips", "last_run", "stats", "in_flight", "stale",
    }
)  # fmt: skip
"""What answers add to a definition. A PUT of a whole answer may carry it along."""

Status = Literal["active", "paused", "completed"]


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class NextRun(Answer):
    """One of the next occurrences."""

    scheduled_time: Instant = Field(description="The nominal instant: what the key is made of.")
    fires_at: Instant = Field(description="The nominal instant moved by the job's spread.")
    local: str = Field(description="The nominal instant in the schedule's zone.")


class LastRunAnswer(Answer):
    """The last run that started."""

    id: str
    key: str
    scheduled_time: Instant
    trigger: Trigger
    outcome: Outcome
    started_at: Instant | None
    ended_at: Instant | None
    reason: str | None


class JobAnswer(JobDefinition):
    """A job: its definition with every default, and how it is doing."""

    id: str
    tenant: str
    status: Status
    paused: bool
    revision: int = Field(description="Counts changes of the definition; also the ETag.")
    created_at: Instant
    updated_at: Instant
    pause: Pause | None
    next_runs: list[NextRun]
    skips: list[Instant] | None = Field(
        description="Occurrences ahead that are left out, as was asked; null: only the job itself knows them."
    )
    last_run: LastRunAnswer | None
    stats: Stats
    stale: bool = Field(
        default=False, description="True: the job did not answer, this is the index's last word."
    )


class ChangedJobAnswer(JobAnswer):
    """A job after a change of what it does next."""

    in_flight: list[InFlight] = Field(description="Runs that could not be stopped, or are stopping.")


class BatchResult(Answer):
    """What became of one job of a batch: ``job`` or ``problem``."""

    status: int
    job: JobAnswer | None = None
    problem: Problem | None = None


class BatchAnswer(Answer):
    results: list[BatchResult] = Field(description="One for each job, in the order of the request.")


class DeletedAnswer(Answer):
    """A job that is gone, and what still runs of it."""

    id: str
    in_flight: list[InFlight]


class AttemptAnswer(Answer):
    attempt: int
    delivery: int = Field(description="How often this execution id was sent.")
    execution_id: str
    started_at: Instant | None
    ended_at: Instant | None
    outcome: AttemptOutcome
    status_code: int | None
    error: str | None
    answer: str | None = Field(description="At most 4 KiB of what the target answered.")
    worker: str
    revision: int


class ExecutionAnswer(Answer):
    """One occurrence with all its attempts, or a stretch of occurrences that did not run."""

    id: str
    key: str
    job: str
    scheduled_time: Instant
    fires_at: Instant
    trigger: Trigger
    outcome: Outcome
    started_at: Instant | None
    ended_at: Instant | None
    lateness_ms: int | None
    reason: str | None
    count: int = Field(description="Occurrences this row stands for.")
    last_scheduled_time: Instant | None = Field(description="Of a stretch: its last occurrence.")
    revision: int
    attempts: list[AttemptAnswer]


class CancelledExecutionAnswer(ExecutionAnswer):
    """An execution after it was cancelled."""

    in_flight: list[InFlight] = Field(description="The execution itself, if it is stopping still.")


class JobPage(Answer):
    items: list[JobAnswer]
    next_cursor: str | None


class ExecutionPage(Answer):
    items: list[ExecutionAnswer]
    next_cursor: str | None


def definition_document(definition: JobDefinition) -> dict[str, Any]:
    """A definition as clients see it: by alias, defaults filled in, no empty forms of a schedule."""
    document = definition.model_dump(mode="json", by_alias=True)
    document["schedule"] = _without_none(document["schedule"])
    document["except"] = [_without_none(window) for window in document["except"]]
    return document


def job_document(
    *,
    job: str,
    tenant: str,
    definition: JobDefinition,
    status: str,
    revision: int,
    created_at: Any,
    updated_at: Any,
    pause: Pause | None,
    next_runs: Sequence[NextRun],
    skips: Sequence[datetime] | None,
    last_run: LastRun | None,
    stats: Stats,
    stale: bool = False,
) -> dict[str, Any]:
    """The JSON of a :class:`JobAnswer`."""
    answer = JobAnswer(
        **{name: getattr(definition, name) for name in JobDefinition.model_fields},
        id=job,
        tenant=tenant,
        status=status,
        paused=pause is not None,
        revision=revision,
        created_at=created_at,
        updated_at=updated_at,
        pause=pause,
        next_runs=list(next_runs),
        skips=None if skips is None else list(skips),
        last_run=last_run_answer(last_run) if last_run else None,
        stats=stats,
        stale=stale,
    )
    added = answer.model_dump(mode="json", by_alias=True, exclude=set(JobDefinition.model_fields))
    return {"id": added.pop("id"), **definition_document(definition), **added}


def last_run_answer(run: LastRun) -> LastRunAnswer:
    return LastRunAnswer(id=opaque_id(run.key), **{name: getattr(run, name) for name in LastRun.model_fields})


def execution_document(job: str, row: ExecutionRow, attempts: Sequence[AttemptRow] = ()) -> dict[str, Any]:
    """The JSON of an :class:`ExecutionAnswer`."""
    return ExecutionAnswer(
        id=opaque_id(row.key),
        job=job,
        attempts=[attempt_answer(attempt) for attempt in history.with_ends(row, attempts)],
        **{name: getattr(row, name) for name in ExecutionRow.model_fields if name != "seq"},
    ).model_dump(mode="json")


def attempt_answer(row: AttemptRow) -> AttemptAnswer:
    return AttemptAnswer(**{name: getattr(row, name) for name in AttemptRow.model_fields if name != "seq"})


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}
