"""Running an execution that has ended once more."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import ExecutionId, State, Writer
from api.body import read_object
from api.definitions import parse_model
from api.jobs.answers import ExecutionAnswer, execution_document
from api.jobs.executions import locate
from api.openapi import body, problems, security
from api.problems import Kind, invalid
from api.requests import RerunBody
from api.routers.changed import call_key
from api.routers.documented import ALWAYS, BODY, JOB_CHANGE, TEXT, KeyHeader
from workflows.contracts.actor import Actor
from workflows.contracts.attempt import OwnBody

router = APIRouter(prefix="/v1", tags=["Executions"])


@router.post(
    "/executions/{execution_id}/rerun",
    operation_id="rerunExecution",
    summary="Run an execution once more",
    status_code=202,
    response_model=ExecutionAnswer,
    responses={
        202: {
            "description": "The new execution.",
            "headers": {"Location": {"description": "Where the new execution is.", "schema": TEXT}},
        },
        **problems(
            *ALWAYS, *BODY, *JOB_CHANGE, Kind.GONE, Kind.RUN_ACTIVE, Kind.NOT_RERUNNABLE,
            Kind.IDEMPOTENCY_MISMATCH,
        ),
    },
    openapi_extra={"security": security("jobs:write"), **body(RerunBody, examples.RERUN, required=False)},
)  # fmt: skip
async def rerun_execution(
    execution_id: ExecutionId,
    request: Request,
    state: State,
    caller: Writer,
    idempotency_key: KeyHeader = None,
) -> JSONResponse:
    """One that succeeded, was cancelled or was replaced. Its key ends in `+r1`, `+r2`, and so on, so that
    the target does not take it for a repeat; the job's present definition and policy hold.

    A dead letter is redriven instead, under its own key. A manual run's own body is not kept: say what is
    sent. 410 when the job has been deleted.
    """
    found, key = locate(execution_id, caller.tenant)
    document = await read_object(request, may_be_empty=True)
    asked = parse_model(RerunBody, document)
    if "body" in document and asked.target_body:
        raise invalid("Give `body` or `target_body`, not both.", "/target_body")

    async def rerun(operation: str) -> JSONResponse:
        now = state.clock()
        done = await state.rerunning.rerun(
            found,
            key,
            body=OwnBody(value=asked.body) if "body" in document else None,
            target_body=asked.target_body,
            force=asked.force,
            actor=Actor(by=caller.subject, at=now, operation=operation),
            now=now,
        )
        revision = done.execution.revision
        await state.audit.note(
            caller, "rerun", found.job, revision, revision, change=f"{found.ref} {operation}"
        )
        execution = execution_document(found.job, done.execution)
        return JSONResponse(execution, 202, headers={"Location": f"/v1/executions/{execution['id']}"})

    call = f"POST /v1/executions/{execution_id}/rerun"
    return await state.once.answer(call_key(idempotency_key, caller, call, document), rerun)
