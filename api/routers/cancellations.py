"""Cancelling an execution."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import ExecutionId, State, Writer
from api.body import read_object
from api.definitions import parse_model
from api.jobs.answers import CancelledExecutionAnswer, execution_document
from api.jobs.executions import locate
from api.openapi import body, problems, security
from api.problems import Kind
from api.requests import CancelBody
from api.routers.changed import call_key, in_flight_document
from api.routers.documented import ALWAYS, BODY, JOB_CHANGE, KeyHeader
from workflows.contracts.actor import Actor

router = APIRouter(prefix="/v1", tags=["Executions"])


@router.post(
    "/executions/{execution_id}/cancel",
    operation_id="cancelExecution",
    summary="Cancel an execution",
    response_model=CancelledExecutionAnswer,
    responses=problems(*ALWAYS, *BODY, *JOB_CHANGE, Kind.EXECUTION_ENDED, Kind.IDEMPOTENCY_MISMATCH),
    openapi_extra={"security": security("jobs:write"), **body(CancelBody, examples.CANCEL, required=False)},
)
async def cancel_execution(
    execution_id: ExecutionId,
    request: Request,
    state: State,
    caller: Writer,
    idempotency_key: KeyHeader = None,
) -> JSONResponse:
    """Stops it wherever it is; no retry follows. A 409 when it has ended already.

    `in_flight` names it if its request is being broken off still: read the execution again for its end.
    """
    found, key = locate(execution_id, caller.tenant)
    document = await read_object(request, may_be_empty=True)
    parse_model(CancelBody, document)

    async def cancel(operation: str) -> JSONResponse:
        now = state.clock()
        actor = Actor(by=caller.subject, at=now, operation=operation)
        done = await state.cancelling.cancel(found, key, actor=actor, now=now)
        await state.audit.note(
            caller, "cancel", found.job, done.revision, done.revision, change=f"{found.ref} {operation}"
        )
        execution = execution_document(found.job, done.row, done.attempts)
        return JSONResponse({**execution, "in_flight": in_flight_document(done.in_flight)})

    call = f"POST /v1/executions/{execution_id}/cancel"
    return await state.once.answer(call_key(idempotency_key, caller, call, document), cancel)
