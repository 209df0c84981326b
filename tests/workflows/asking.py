"""What clients ask of a job, and waiting for what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner

import workers.queues
import workflows.attempting
import workflows.backfilling
import workflows.beside
import workflows.changing
import workflows.dead_letter
import workflows.group
import workflows.job
import workflows.planned
import workflows.requested
from infra.settings import Settings
from tests.fleet import TENANT, Fleet, actor, view
from tests.sink import Arrival, Sink
from workflows.contracts import names
from workflows.contracts.attempt import OwnBody
from workflows.contracts.backfill import BackfillAccepted, BackfillRequest, CancelBackfill, Only
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import (
    CancelRequest,
    DeleteRequest,
    EditRequest,
    JobChanged,
    JobView,
    PauseRequest,
    ResumeRequest,
    SkipRequest,
    Triggered,
    TriggerRequest,
)
from workflows.contracts.records import ExecutionRow
from workflows.domain import resolve

Job = WorkflowHandle[Any, Any]


async def pause(job: Job, *, reason: str = "", until: datetime | None = None) -> JobChanged:
    request = PauseRequest(reason=reason, until=until, actor=actor())
    changed: JobChanged = await job.execute_update(names.UPDATE_PAUSE, request, result_type=JobChanged)
    return changed


async def resume(job: Job) -> JobChanged:
    changed: JobChanged = await job.execute_update(
        names.UPDATE_RESUME, ResumeRequest(actor=actor()), result_type=JobChanged
    )
    return changed


async def edit(job: Job, definition: dict[str, Any]) -> JobChanged:
    """Replace the definition, resolved as the API does it."""
    parsed = JobDefinition.model_validate(definition)
    schedule = resolve.resolve(
        parsed.schedule, now=datetime.now(UTC), default_timezone="UTC", tenant=TENANT, job="job"
    )
    wanted = parsed.model_copy(update={"schedule": schedule})
    request = EditRequest(definition=wanted, actor=actor())
    changed: JobChanged = await job.execute_update(names.UPDATE_EDIT, request, result_type=JobChanged)
    return changed


async def trigger(job: Job, request: str = "now", **body: Any) -> Triggered:
    """``body=…``: an own body."""
    own = OwnBody(value=body["body"]) if body else None
    asked = TriggerRequest(request=request, body=own, actor=actor())
    changed: Triggered = await job.execute_update(names.UPDATE_TRIGGER, asked, result_type=Triggered)
    return changed


async def skip(job: Job, scheduled_time: datetime) -> JobChanged:
    request = SkipRequest(scheduled_time=scheduled_time, actor=actor())
    changed: JobChanged = await job.execute_update(names.UPDATE_SKIP, request, result_type=JobChanged)
    return changed


async def delete(job: Job, *, cancel: bool = False) -> JobChanged:
    request = DeleteRequest(running="cancel" if cancel else "finish", actor=actor())
    changed: JobChanged = await job.execute_update(names.UPDATE_DELETE, request, result_type=JobChanged)
    return changed


async def cancel(job: Job, key: str) -> JobChanged:
    request = CancelRequest(key=key, actor=actor())
    changed: JobChanged = await job.execute_update(names.UPDATE_CANCEL, request, result_type=JobChanged)
    return changed


async def backfill(job: Job, from_: datetime, to: datetime, *, total: int = 0, operation: str = "",
                   only: Only = "missing", max_concurrent: int = 1) -> BackfillAccepted:  # fmt: skip
    who = actor().model_copy(update={"operation": operation})
    request = BackfillRequest(
        from_=from_,
        to=to,
        only=only,
        max_concurrent=max_concurrent,
        total=total,
        past_end=True,
        actor=who,
    )
    accepted: BackfillAccepted = await job.execute_update(
        names.UPDATE_BACKFILL, request, result_type=BackfillAccepted
    )
    return accepted


async def cancel_backfill(job: Job, number: int = 1) -> JobChanged:
    request = CancelBackfill(number=number, actor=actor())
    changed: JobChanged = await job.execute_update(
        names.UPDATE_CANCEL_BACKFILL, request, result_type=JobChanged
    )
    return changed


async def refusal(asked: Any) -> tuple[str | None, str]:
    """Type and message of the rejection that ``asked`` meets."""
    with pytest.raises(WorkflowUpdateFailedError) as failed:
        await asked
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause.type, failed.value.cause.message


async def seen(job: Job, enough: Callable[[JobView], bool], within: float = 60) -> JobView:
    """The job as soon as it looks so."""
    async with asyncio.timeout(within):
        while not enough(found := await view(job)):
            await asyncio.sleep(0.05)
    return found


async def held(job: Job) -> JobView:
    """The job once a worker has its next run."""
    return await seen(job, lambda found: found.current is not None and found.current.outcome == "held")


async def stored(
    fleet: Fleet, job: Job, enough: Callable[[list[ExecutionRow]], bool], within: float = 60
) -> list[ExecutionRow]:
    """The newest row of each execution of a job, as soon as they are enough."""
    ref = job.id.rpartition("/")[2]
    async with asyncio.timeout(within):
        while not enough(rows := list(fleet.recorder.executions(ref).values())):
            await asyncio.sleep(0.05)
    return rows


def ended(rows: list[ExecutionRow], count: int = 1) -> bool:
    return len([row for row in rows if row.ended_at is not None]) >= count


def told(rows: list[ExecutionRow]) -> list[tuple[str, str | None, int]]:
    return [(row.outcome, row.reason, row.count) for row in rows]


def at(moment: datetime) -> str:
    return moment.isoformat()


def from_now(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


class Gate:
    """A target that answers when it is let."""

    def __init__(self, sink: Sink, path: str, *statuses: int) -> None:
        """``statuses``: of the first answers; 200 afterwards."""
        self._open = asyncio.Event()
        self._statuses = statuses
        sink.answers[path] = self._answer

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    async def _answer(self, _: Arrival, before: int) -> web.Response:
        await self._open.wait()
        return web.Response(status=self._statuses[before] if before < len(self._statuses) else 200)


def answers(sink: Sink, path: str, *statuses: int) -> None:
    Gate(sink, path, *statuses).open()


_MODULES = (
    workflows.attempting,
    workflows.backfilling,
    workflows.beside,
    workflows.changing,
    workflows.dead_letter,
    workflows.group,
    workflows.job,
    workflows.planned,
    workflows.requested,
)


@asynccontextmanager
async def impatient_fleet(
    client: Client, settings: Settings, patch: pytest.MonkeyPatch, **constants: Any
) -> AsyncIterator[Fleet]:
    """A worker whose workflow has other constants; outside the sandbox, which would read its own."""
    for name, value in constants.items():
        homes = [module for module in _MODULES if hasattr(module, name)]
        assert homes, f"nobody knows {name}"
        for module in homes:
            patch.setattr(module, name, value)
    patch.setattr(workers.queues, "SandboxedWorkflowRunner", lambda **_: UnsandboxedWorkflowRunner())
    fleet = await Fleet(client, settings).start()
    try:
        yield fleet
    finally:
        await fleet.stop()
