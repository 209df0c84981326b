"""Leaving out one occurrence of a job, and taking that back."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import JobId, State, Writer, existing_id
from api.auth.principal import Principal
from api.body import read_object
from api.definitions import parse_model
from api.jobs.answers import ChangedJobAnswer
from api.jobs.skipping import check_ahead, running
from api.openapi import body, problems, security
from api.problems import Kind, ProblemError
from api.requests import SkipBody
from api.routers.changed import answer_changed, call_key
from api.routers.documented import ALWAYS, BODY, ETAG, JOB_CHANGE, KeyHeader
from api.state import AppState
from workflows.contracts.actor import Actor
from workflows.contracts.job import SkipRequest
from workflows.contracts.names import UPDATE_SKIP

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["Jobs"])

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"headers": ETAG},
    **problems(
        *ALWAYS, *BODY, *JOB_CHANGE, Kind.RUN_ACTIVE, Kind.OCCURRENCE_SERVED,
        Kind.TOO_MANY_SKIPS, Kind.IDEMPOTENCY_MISMATCH,
    ),
}  # fmt: skip


@router.post(
    "/skip",
    operation_id="skipOccurrence",
    summary="Skip one occurrence",
    response_model=ChangedJobAnswer,
    responses=_RESPONSES,
    openapi_extra={"security": security("jobs:write"), **body(SkipBody, examples.SKIP)},
)
async def skip_occurrence(
    job_id: JobId, request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Leaves out one occurrence ahead; when its time comes it is recorded as skipped, reason `asked`.

    A 409 when it runs already or has been served; a 422 names the nearest occurrences when the job has
    none at this instant.
    """
    return await _skip(job_id, request, state, caller, idempotency_key, skipped=True)


@router.post(
    "/unskip",
    operation_id="unskipOccurrence",
    summary="Take a skip back",
    response_model=ChangedJobAnswer,
    responses=_RESPONSES,
    openapi_extra={"security": security("jobs:write"), **body(SkipBody, examples.SKIP)},
)
async def unskip_occurrence(
    job_id: JobId, request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Until its time has come. An occurrence that was not to be skipped stays as it is."""
    return await _skip(job_id, request, state, caller, idempotency_key, skipped=False)


async def _skip(
    job_id: str, request: Request, state: AppState, caller: Principal, header: str | None, *, skipped: bool
) -> JSONResponse:
    name = "skip" if skipped else "unskip"
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    document = await read_object(request)
    asked = parse_model(SkipBody, document)

    async def act(operation: str) -> JSONResponse:
        now = state.clock()
        change = SkipRequest(
            scheduled_time=asked.scheduled_time,
            skipped=skipped,
            actor=Actor(by=caller.subject, at=now, operation=operation),
        )
        async with state.changes.turn(found) as turn:
            view = await turn.view()
            check_ahead(view, found.tenant, asked.scheduled_time, now)
            try:
                changed = await turn.change(UPDATE_SKIP, change, update_id=f"{name}-{operation}", now=now)
            except ProblemError as problem:
                if problem.kind is Kind.RUN_ACTIVE:
                    raise running(str(problem.extra.get("active", ""))) from None
                raise
        return await answer_changed(state, caller, found, name, changed, operation)

    key = call_key(header, caller, f"POST /v1/jobs/{job_id}/{name}", document)
    return await state.once.answer(key, act)
