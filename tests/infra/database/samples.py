"""Definitions, rows and records to store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from infra.database import JobIndex, Reservation, StoredJob
from workflows.contracts.definition import HttpTarget, JobDefinition
from workflows.contracts.names import execution_id, scheduled_key
from workflows.contracts.records import (
    AttemptRow,
    ExecutionRow,
    JobProgress,
    JobRow,
    LastRun,
    Record,
    Stats,
    sequence,
)
from workflows.contracts.schedule import Schedule

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def definition(**fields: Any) -> JobDefinition:
    target = HttpTarget(url=fields.pop("url", "https://example.org/hook"))
    return JobDefinition(
        **{"schedule": Schedule(every=timedelta(minutes=1), anchor=NOON), "target": target, **fields}
    )


def job_row(job: str = "report", **fields: Any) -> JobRow:
    row = {
        "job": job,
        "generation": 1,
        "revision": 1,
        "change": 1,
        "status": "active",
        "definition": definition(),
        "created_at": NOW,
        "updated_at": NOW,
    }
    return JobRow.model_validate({**row, **fields})


def row_of(stored: StoredJob, **fields: Any) -> JobRow:
    """The first row of a reserved job, as its workflow writes it."""
    row = {
        "generation": stored.generation,
        "revision": stored.revision,
        "definition": stored.definition,
        "created_at": stored.created_at,
        "updated_at": stored.created_at,
    }
    return job_row(stored.job, **{**row, **fields})


async def reserve(index: JobIndex, tenant: str, job: str | None = "report", **options: Any) -> Reservation:
    wanted = {"fingerprint": "f", "max_jobs": 1000, "create_rate": 1000.0, "now": NOW, **options}
    return await index.reserve(tenant, job, wanted.pop("definition", definition()), **wanted)


async def create(index: JobIndex, tenant: str, job: str = "report", **options: Any) -> StoredJob:
    """A job that is active, with its first row stored."""
    row = options.pop("row", {})
    reservation = await reserve(index, tenant, job, **options)
    assert await index.activate(tenant, row_of(reservation.job, **row)) == "active"
    stored = await index.get(tenant, reservation.job.job)
    assert stored is not None
    return stored


def execution(tenant: str, ref: str = "report", at: datetime = NOON, **fields: Any) -> ExecutionRow:
    row = {
        "key": scheduled_key(tenant, ref, at),
        "scheduled_time": at,
        "fires_at": at,
        "outcome": "succeeded",
        "seq": sequence(1, 1, 5),
        "revision": 1,
    }
    return ExecutionRow.model_validate({**row, **fields})


def attempt(key: str, number: int = 1, **fields: Any) -> AttemptRow:
    row = {
        "attempt": number,
        "delivery": 1,
        "execution_id": execution_id(key, number),
        "outcome": "succeeded",
        "seq": sequence(number, 1, 5),
        "started_at": NOW,
    }
    return AttemptRow.model_validate({**row, **fields})


def progress(run: int, **fields: Any) -> JobProgress:
    outcome = fields.pop("outcome", "succeeded")
    last = LastRun(key=f"k{run}", scheduled_time=NOON, trigger="schedule", outcome=outcome)
    row = {"run_number": run, "stats": Stats(runs=run), "last_run": last}
    return JobProgress.model_validate({**row, **fields})


def record(tenant: str, ref: str = "report", **parts: Any) -> Record:
    return Record(tenant=tenant, ref=ref, **parts)


def run_records(tenant: str, ref: str = "report", at: datetime = NOON, run: int = 1) -> list[Record]:
    """What a run that succeeds leaves: it fired, it ended."""
    key = scheduled_key(tenant, ref, at)
    fired = at + timedelta(milliseconds=3)
    fields: dict[str, Any] = {"started_at": fired, "lateness_ms": 3}
    early = sequence(1, 1, 1)
    ended = fired + timedelta(seconds=1)
    return [
        record(
            tenant,
            ref,
            execution=execution(tenant, ref, at, outcome="running", seq=early, **fields),
            attempt=attempt(key, outcome="running", seq=early, started_at=fired, worker="w1"),
        ),
        record(
            tenant,
            ref,
            execution=execution(tenant, ref, at, ended_at=ended, **fields),
            attempt=attempt(key, started_at=fired, ended_at=ended, status_code=200, worker="w1"),
            progress=progress(run, next_fires_at=at + timedelta(minutes=1)),
        ),
    ]
