"""Job states, attempts and reports to try the rules on. The job runs each minute from noon on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from workflows.contracts.attempt import AttemptInput, AttemptReport
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import JobState, ManualRun, RunState
from workflows.contracts.planning import PlannedOccurrence
from workflows.contracts.records import ExecutionRow
from workflows.domain import job_sources, job_state, overlap
from workflows.domain.active import of_loop

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(minute: float) -> datetime:
    """So many minutes after noon."""
    return NOON + MINUTE * minute


def definition(**fields: Any) -> JobDefinition:
    return JobDefinition.model_validate(
        {
            "schedule": {"every": "PT1M", "anchor": NOON.isoformat()},
            "target": {"url": "http://127.0.0.1:9/"},
            "retry": {"initial_interval": 10, "factor": 1, "jitter": 0},
            **fields,
        }
    )


def planned(*minutes: float, spread: float = 0) -> list[PlannedOccurrence]:
    return [
        PlannedOccurrence(scheduled_time=at(one), fires_at=at(one + spread), not_after=at(one + spread + 1.5))
        for one in minutes
    ]


def state(
    plan: Iterable[float] = (1, 2, 3, 4), *, cursor: float = 0, spread: float = 0, **fields: Any
) -> JobState:
    return JobState.model_validate(
        {
            "tenant": "acme",
            "job": "report",
            "ref": "report",
            "definition": definition(),
            "created_at": at(-1),
            "updated_at": at(-1),
            "cursor": at(cursor),
            "plan": planned(*plan, spread=spread),
            "tzdata": "2026a",
            **fields,
        }
    )


def begun(job: JobState) -> tuple[RunState, AttemptInput]:
    """The first planned occurrence is handed to a worker."""
    job_sources.begin_planned(job, job.plan[0], job.plan[0].fires_at)
    return again(job)


def begun_by_hand(job: JobState, minute: float, request: str = "now") -> tuple[RunState, AttemptInput]:
    job_sources.begin_manual(job, ManualRun(request=request, at=at(minute)))
    return again(job)


def again(job: JobState) -> tuple[RunState, AttemptInput]:
    assert job.run is not None
    return job.run, job_state.attempt_input(job, job.run)


def report(
    outcome: str = "succeeded", *, fired: float | None = None, ended: float, **fields: Any
) -> AttemptReport:
    """An attempt that fired and ended at these minutes."""
    sent = (
        {}
        if fired is None
        else {"fired": True, "deliveries": 1, "started_at": at(fired), "fired_at": at(fired)}
    )
    if outcome in ("failed", "timed_out"):
        sent["retryable"] = True
    return AttemptReport.model_validate({"outcome": outcome, "ended_at": at(ended), **sent, **fields})


def comes_back(job: JobState, told: AttemptReport) -> None:
    """An attempt that has an outcome of its own ends with ``told``."""
    run, inp = again(job)
    job_state.learn(job, run, inp, told)
    job_state.ended(job, run, inp, told, told.ended_at)


def rows(job: JobState) -> list[ExecutionRow]:
    return [record.execution for record in job.records if record.execution is not None]


def told(job: JobState) -> list[tuple[str, str | None, int]]:
    """Outcome, reason and count of each row that waits for the database."""
    return [(row.outcome, row.reason, row.count) for row in rows(job)]


def minutes(job: JobState) -> list[float]:
    """What is planned."""
    return [(one.scheduled_time - NOON) / MINUTE for one in job.plan]


def run_ends(job: JobState, run: RunState, ended_at: datetime, *, started: datetime) -> datetime:
    """Ends the run of the loop, and settles what fell due meanwhile; when that was."""
    run.started_at = started
    job_state.served(job, run)
    job.run = None
    overlap.settle(job, of_loop(run, ended_at), ended_at)
    return ended_at
