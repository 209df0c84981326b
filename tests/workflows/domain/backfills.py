"""Backfills of a job of the tests, and runs of them."""

from __future__ import annotations

from typing import Any

from tests.workflows.domain.states import at, report
from workflows.contracts import names
from workflows.contracts.actor import Actor
from workflows.contracts.backfill import (
    Backfill,
    BackfillRequest,
    Paged,
)
from workflows.contracts.job import JobState, RunState
from workflows.domain import backfill, job_sources, job_state


def accepted(job: JobState, *minutes: float, only: str = "missing", **fields: Any) -> Backfill:
    """A backfill of the hour before noon, with a page of these minutes."""
    request = BackfillRequest.model_validate(
        {
            "from": at(-60),
            "to": at(0),
            "only": only,
            "total": len(minutes),
            "actor": Actor(at=at(0)),
            **fields,
        }
    )
    one = backfill.accept(job, request, at(0))
    one.page = [Paged(at=at(minute)) for minute in minutes]
    one.all_paged, one.asked = True, True
    return one


def begin(job: JobState, one: Backfill, now: float = 0) -> RunState:
    entry = backfill.take(job, one, at(now))
    assert entry is not None
    key = backfill.key_of(job, one, entry)
    run = job_sources.begin_backfill(job, key, entry, one.number, at(now))
    one.turned_at = job.turns
    return run


def end(job: JobState, outcome: str = "succeeded", now: float = 0) -> None:
    """The run there is ends, half a minute after it has fired."""
    assert job.run is not None
    inp = job_state.attempt_input(job, job.run)
    told = report(outcome, fired=now, ended=now + 0.5, retryable=False)
    job_state.learn(job, job.run, inp, told)
    job_state.ended(job, job.run, inp, told, told.ended_at)


def own(minute: float) -> str:
    return names.scheduled_key("acme", "report", at(minute))
