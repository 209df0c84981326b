"""Executions: the record of every run, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from api.access import ExecutionId, JobId, Reader, State, existing_id
from api.jobs.answers import ExecutionAnswer, ExecutionPage, execution_document
from api.jobs.executions import alive_rows, as_present, locate, no_such_execution
from api.jobs.reading import any_view_of
from api.jobs.refs import Found
from api.openapi import problems, security
from api.problems import Kind, ProblemError
from api.queries import ExecutionQuery, TenantExecutionQuery
from api.routers.documented import ALWAYS
from api.state import AppState
from infra.database.errors import DatabaseUnavailable
from infra.database.executions import StoredExecution
from infra.database.page import Page
from workflows.contracts.records import ExecutionRow

router = APIRouter(prefix="/v1", tags=["Executions"])

_MAY_WAIT = ("dead_lettered", "cancelled", "replaced", "retrying")
"""Outcomes of executions that may wait to be run, or to be run again, under the same key."""


@router.get(
    "/jobs/{job_id}/executions",
    operation_id="listJobExecutions",
    summary="List a job's executions",
    response_model=ExecutionPage,
    responses=problems(
        *ALWAYS, Kind.INVALID, Kind.NOT_FOUND, Kind.DATABASE_UNAVAILABLE, Kind.SCHEDULER_UNAVAILABLE
    ),
    openapi_extra={"security": security("jobs:read")},
)
async def list_job_executions(
    job_id: JobId, state: State, caller: Reader, query: Annotated[ExecutionQuery, Query()]
) -> JSONResponse:
    """Newest first; on the first page, those alive that the history does not know yet. Of the present
    generation only."""
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    alive = {row.key: row for row in await _alive(state, found)}
    unlisted = await _unlisted(state, found, query, alive) if query.cursor is None else {}
    page = await _stored(state, caller.tenant, found.ref, query)
    items = [_document(stored, alive) for stored in page.items if _wanted(_present(stored, alive), query)]
    listed = {item["key"] for item in items}  # what is stored by now comes in its place
    first = [document for key, document in unlisted.items() if key not in listed]
    return JSONResponse({"items": [*first, *items], "next_cursor": page.next_cursor})


@router.get(
    "/executions",
    operation_id="listExecutions",
    summary="List the tenant's executions",
    response_model=ExecutionPage,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.DATABASE_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def list_executions(
    state: State, caller: Reader, query: Annotated[TenantExecutionQuery, Query()]
) -> JSONResponse:
    """Across all jobs, deleted ones included. Of those alive, the ones that run or wait for a retry.

    `label` and `target` are those of the job's definition as it is now, not as it was then.
    """
    page = await _stored(state, caller.tenant, None, query)
    items = [execution_document(stored.job, stored.row, stored.attempts) for stored in page.items]
    return JSONResponse({"items": items, "next_cursor": page.next_cursor})


@router.get(
    "/executions/{execution_id}",
    operation_id="getExecution",
    summary="Read an execution",
    response_model=ExecutionAnswer,
    responses=problems(*ALWAYS, Kind.NOT_FOUND, Kind.DATABASE_UNAVAILABLE, Kind.SCHEDULER_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def get_execution(execution_id: ExecutionId, state: State, caller: Reader) -> JSONResponse:
    """With every attempt. While the database is away only one that is alive can be read."""
    found, key = locate(execution_id, caller.tenant)
    missing: Exception = no_such_execution()
    try:
        stored = await state.history.get_execution(found.tenant, key)
    except DatabaseUnavailable as error:
        stored, missing = None, error
    if stored is not None and stored.row.outcome not in _MAY_WAIT:
        return JSONResponse(execution_document(stored.job, stored.row, stored.attempts))
    alive = {row.key: row for row in await _alive(state, found)}
    if stored is not None:
        return JSONResponse(_document(stored, alive))
    if key in alive:
        return JSONResponse(execution_document(found.job, alive[key]))
    raise missing


def _present(stored: StoredExecution, alive: Mapping[str, ExecutionRow]) -> ExecutionRow:
    return as_present(stored.row, alive.get(stored.row.key))


def _document(stored: StoredExecution, alive: Mapping[str, ExecutionRow]) -> dict[str, Any]:
    return execution_document(stored.job, _present(stored, alive), stored.attempts)


async def _unlisted(
    state: AppState, found: Found, query: ExecutionQuery, alive: Mapping[str, ExecutionRow]
) -> dict[str, dict[str, Any]]:
    """By key, those alive that no page brings: the history does not know them, or as something else."""
    known = await state.history.get_executions(found.tenant, list(alive))
    documents = {}
    for key, row in alive.items():
        stored = known.get(key)
        if stored is None and _wanted(row, query):
            documents[key] = execution_document(found.job, row)
        elif (
            stored is not None and not _wanted(stored.row, query) and _wanted(_present(stored, alive), query)
        ):
            documents[key] = _document(stored, alive)
    return documents


async def _stored(
    state: AppState, tenant: str, ref: str | None, query: ExecutionQuery
) -> Page[StoredExecution]:
    more: dict[str, Any] = {}
    if isinstance(query, TenantExecutionQuery):
        more = {"job": query.job, "labels": query.labels(), "target": query.target}
    return await state.history.list_executions(
        tenant,
        ref,
        **more,
        outcome=query.outcome or None,
        trigger=query.trigger or None,
        since=query.since,
        until=query.until,
        limit=query.limit,
        cursor=query.cursor,
    )


async def _alive(state: AppState, found: Found) -> list[ExecutionRow]:
    """Those of the job that are alive, if it answers in time; a deleted one may have some left."""
    try:
        view = await any_view_of(state.temporal, found)
    except ProblemError:
        return []
    return [] if view is None else alive_rows(view, state.clock())


def _wanted(row: ExecutionRow, query: ExecutionQuery) -> bool:
    conditions: list[Any] = [
        not query.outcome or row.outcome in query.outcome,
        not query.trigger or row.trigger in query.trigger,
        query.since is None or row.scheduled_time >= query.since,
        query.until is None or row.scheduled_time < query.until,
    ]
    return all(conditions)
