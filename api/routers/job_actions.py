"""What is done with a job: pause, resume, trigger."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import JobId, State, Writer, existing_id
from api.body import read_object
from api.definitions import parse_model
from api.jobs.answers import ChangedJobAnswer, ExecutionAnswer, execution_document
from api.openapi import body, problems, security
from api.problems import Kind, invalid
from api.requests import PauseBody, ResumeBody, TriggerBody
from api.routers.changed import call_key, changed_job
from api.routers.documented import ALWAYS, BODY, ETAG, JOB_CHANGE, TEXT, KeyHeader
from workflows.contracts.actor import Actor
from workflows.contracts.attempt import OwnBody
from workflows.contracts.job import PauseRequest, ResumeRequest, Triggered, TriggerRequest
from workflows.contracts.names import UPDATE_PAUSE, UPDATE_RESUME, UPDATE_TRIGGER

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["Jobs"])


@router.post(
    "/pause",
    operation_id="pauseJob",
    summary="Pause a job",
    response_model=ChangedJobAnswer,
    responses={
        200: {"headers": ETAG},
        **problems(*ALWAYS, *BODY, *JOB_CHANGE, Kind.IDEMPOTENCY_MISMATCH),
    },
    openapi_extra={"security": security("jobs:write"), **body(PauseBody, examples.PAUSE, required=False)},
)
async def pause_job(
    job_id: JobId, request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Nothing of its schedule fires any more; what is in flight already is named in `in_flight`."""
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    document = await read_object(request, may_be_empty=True)
    asked = parse_model(PauseBody, document)

    async def pause(operation: str) -> JSONResponse:
        now = state.clock()
        if asked.until is not None and asked.until <= now:
            raise invalid(
                "The end of a pause must lie in the future; leave it out to pause until a resume.", "/until"
            )
        actor = Actor(by=caller.subject, at=now, operation=operation)
        change = PauseRequest(reason=asked.reason, until=asked.until, actor=actor)
        return await changed_job(state, caller, found, UPDATE_PAUSE, change, operation)

    key = call_key(idempotency_key, caller, f"POST /v1/jobs/{job_id}/pause", document)
    return await state.once.answer(key, pause)


@router.post(
    "/resume",
    operation_id="resumeJob",
    summary="Resume a job",
    response_model=ChangedJobAnswer,
    responses={
        200: {"headers": ETAG},
        **problems(*ALWAYS, *BODY, *JOB_CHANGE, Kind.IDEMPOTENCY_MISMATCH),
    },
    openapi_extra={"security": security("jobs:write"), **body(ResumeBody, examples.RESUME, required=False)},
)
async def resume_job(
    job_id: JobId, request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Never fires for the past: what fell due in the pause is recorded as skipped."""
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    document = await read_object(request, may_be_empty=True)
    parse_model(ResumeBody, document)

    async def resume(operation: str) -> JSONResponse:
        actor = Actor(by=caller.subject, at=state.clock(), operation=operation)
        return await changed_job(state, caller, found, UPDATE_RESUME, ResumeRequest(actor=actor), operation)

    key = call_key(idempotency_key, caller, f"POST /v1/jobs/{job_id}/resume", document)
    return await state.once.answer(key, resume)


@router.post(
    "/trigger",
    operation_id="triggerJob",
    summary="Run a job now",
    status_code=202,
    response_model=ExecutionAnswer,
    responses={
        202: {
            "description": "The execution.",
            "headers": {"Location": {"description": "Where the execution is.", "schema": TEXT}},
        },
        **problems(
            *ALWAYS, *BODY, *JOB_CHANGE, Kind.RUN_ACTIVE, Kind.TOO_MANY_REQUESTS,
            Kind.IDEMPOTENCY_MISMATCH,
        ),
    },
    openapi_extra={"security": security("jobs:write"), **body(TriggerBody, examples.TRIGGER, required=False)},
)  # fmt: skip
async def trigger_job(
    job_id: JobId, request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Works on paused and completed jobs too. The same `request` runs once.

    While a run is active the job's `concurrency.policy` decides: under `forbid` this is a 409 that names it.
    With `force` both run side by side.
    """
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    document = await read_object(request, may_be_empty=True)
    asked = parse_model(TriggerBody, document)
    key = call_key(idempotency_key, caller, f"POST /v1/jobs/{job_id}/trigger", document)
    name = asked.request or (key.derive("trigger") if key else state.random_name())

    async def trigger(_: str) -> JSONResponse:
        """Named by its request, which the job remembers."""
        operation = f"trigger-{name}"
        asked_for = TriggerRequest(
            request=name,
            force=asked.force,
            body=OwnBody(value=asked.body) if "body" in document else None,
            actor=Actor(by=caller.subject, at=state.clock(), operation=operation),
        )
        triggered = await state.changes.send(found, UPDATE_TRIGGER, asked_for, Triggered, update_id=operation)
        revision = triggered.execution.revision
        await state.audit.note(
            caller, "trigger", found.job, revision, revision, change=f"{found.ref} {operation}"
        )
        execution = execution_document(job_id, triggered.execution)
        return JSONResponse(execution, 202, headers={"Location": f"/v1/executions/{execution['id']}"})

    return await state.once.answer(key, trigger)
