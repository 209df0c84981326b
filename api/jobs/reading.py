"""Reading one job: from its workflow, and from its index row when the workflow does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from api.connection import Connection
from api.jobs.answers import NextRun, job_document
from api.jobs.refs import Found, no_such_job
from api.jobs.rules import next_runs
from api.problems import Kind, ProblemError
from infra.database.stored_job import StoredJob
from infra.temporal.errors import SetupError
from workflows.contracts.job import JobView
from workflows.contracts.names import QUERY_VIEW, job_workflow_id
from workflows.contracts.records import JobRow

log = logging.getLogger(__name__)

VIEW_WITHIN = timedelta(seconds=2)
_TOO_SLOW = frozenset({RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED})
"""How the SDK says that no answer came in time."""


async def view_of(connection: Connection, found: Found, *, within: timedelta = VIEW_WITHIN) -> JobView | None:
    """The job as its workflow knows it; None if that did not answer in time, or was ended by an operator.

    Raises 404 when the workflow says that the job is deleted, or is not there at all nor in the index.
    """
    try:
        view = await _view(connection, found, within, reject=QueryRejectCondition.NOT_COMPLETED_CLEANLY)
    except ProblemError:
        if found.is_stored:  # an operator deleted it, or its history has gone since one terminated it
            return None
        raise
    if view is not None and view.status == "deleted":
        raise no_such_job(found.job)
    return view


async def any_view_of(
    connection: Connection, found: Found, *, within: timedelta = VIEW_WITHIN
) -> JobView | None:
    """As :func:`view_of`, the last one of a deleted or terminated job too: runs of it may be alive still."""
    return await _view(connection, found, within, reject=None)


async def _view(
    connection: Connection, found: Found, within: timedelta, *, reject: QueryRejectCondition | None
) -> JobView | None:
    try:
        async with asyncio.timeout(within.total_seconds()):
            client = await connection.client()
            handle = client.get_workflow_handle(job_workflow_id(found.tenant, found.ref))
            while True:  # a try that went to a worker that has died is lost, the next one need not be
                try:
                    view: JobView = await handle.query(
                        QUERY_VIEW, result_type=JobView, reject_condition=reject, rpc_timeout=VIEW_WITHIN
                    )
                    return view
                except RPCError as error:
                    if error.status not in _TOO_SLOW:
                        raise
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise no_such_job(found.job) from None
        log.info("job %s/%s does not answer: %s", found.tenant, found.ref, error.message)
        return None
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError, SetupError, TimeoutError) as error:
        log.info("job %s/%s cannot be asked: %s", found.tenant, found.ref, error)
        return None


async def present_view(connection: Connection, found: Found, *, within: timedelta) -> JobView:
    """As :func:`view_of`, for a change that needs to know what it changes: 503 without an answer."""
    view = await view_of(connection, found, within=within)
    if view is None:
        raise ProblemError(
            Kind.NO_ANSWER,
            "No worker answered in time, so the change was not applied; start one, or try again.",
            headers={"Retry-After": "5"},
        )
    return view


async def present_document(connection: Connection, found: Found, now: datetime) -> dict[str, Any]:
    """The job's answer: by its workflow, else by its row and marked as stale, else 503."""
    view = await view_of(connection, found)
    if view is not None:
        return document_of_view(found.tenant, view, now)
    if found.stored is None:
        raise ProblemError(
            Kind.NO_ANSWER,
            "Neither the database nor the job itself answers; try again.",
            headers={"Retry-After": "5"},
        )
    return document_of_row(found.stored, now, stale=True)


def document_of_view(tenant: str, view: JobView, now: datetime) -> dict[str, Any]:
    return job_document(
        job=view.job,
        tenant=tenant,
        definition=view.definition,
        status=view.status,
        revision=view.revision,
        created_at=view.created_at,
        updated_at=view.updated_at,
        pause=view.pause,
        next_runs=_runs_of_view(tenant, view, now),
        skips=view.skips,
        last_run=view.last_run,
        stats=view.stats,
    )


def document_of_row(stored: StoredJob, now: datetime, *, stale: bool = False) -> dict[str, Any]:
    runs: Sequence[NextRun] = []
    if stored.status != "completed":
        runs = next_runs(
            stored.definition,
            tenant=stored.tenant,
            job=stored.job,
            now=now,
            pause=stored.pause,
            scheduled_runs=stored.stats.runs,
        )
    return job_document(
        job=stored.job,
        tenant=stored.tenant,
        definition=stored.definition,
        status=stored.status,
        revision=stored.revision,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
        pause=stored.pause,
        next_runs=runs,
        skips=None,
        last_run=stored.last_run,
        stats=stored.stats,
        stale=stale,
    )


def row_of_view(tenant: str, view: JobView, now: datetime) -> JobRow:
    """The index row after a change, so that a client reads its own write."""
    runs = [] if view.status == "deleted" else _runs_of_view(tenant, view, now, count=1)
    return JobRow(
        job=view.job,
        generation=view.generation,
        revision=view.revision,
        change=view.change,
        status=view.status,
        definition=view.definition,
        pause=view.pause,
        created_at=view.created_at,
        updated_at=view.updated_at,
        next_fires_at=runs[0].fires_at if runs and view.pause is None else None,
        run_number=view.run_number,
    )


def may_be_over(view: JobView, now: datetime) -> bool:
    """Whether an active job looks as if it were about to complete: nothing is planned or alive."""
    if view.status != "active" or view.plan or view.current is not None:
        return False
    return not _runs_of_view(view.tenant, view, now, count=1)


def _runs_of_view(tenant: str, view: JobView, now: datetime, count: int = 5) -> list[NextRun]:
    if view.status in ("completed", "deleted"):
        return []
    return next_runs(
        view.definition,
        tenant=tenant,
        job=view.job,
        now=now,
        cursor=view.cursor,
        pause=view.pause,
        scheduled_runs=view.scheduled_runs,
        skips=view.skips,
        count=count,
    )
