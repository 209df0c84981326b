"""Backfills of a job: running occurrences of the past, and following how far that has come."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import JobId, Reader, State, Writer, existing_id
from api.body import read_object
from api.definitions import parse_model
from api.jobs.backfills import (
    BackfillAnswer,
    BackfillList,
    CancelledBackfillAnswer,
    answer_of,
    backfills_of,
    check,
    count,
    dry_answer,
    number_of,
)
from api.openapi import body, problems, security
from api.problem_table import no_such_backfill
from api.problems import Kind
from api.requests import BackfillBody
from api.routers.changed import call_key, in_flight_document
from api.routers.documented import ALWAYS, BODY, JOB_CHANGE, TEXT, KeyHeader
from workflows.contracts.actor import Actor
from workflows.contracts.backfill import BackfillAccepted, BackfillRequest, CancelBackfill
from workflows.contracts.job import JobChanged
from workflows.contracts.names import UPDATE_BACKFILL, UPDATE_CANCEL_BACKFILL

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["Jobs"])

BackfillId = Annotated[str, Path(description="The `id` of a backfill.", max_length=100, examples=["b1"])]


@router.post(
    "/backfill",
    operation_id="backfillJob",
    summary="Run occurrences of the past",
    status_code=202,
    response_model=BackfillAnswer,
    responses={
        202: {
            "description": "The backfill; of a dry run, what it would do.",
            "headers": {
                "Location": {"description": "Where its progress is; not of a dry run.", "schema": TEXT}
            },
        },
        **problems(*ALWAYS, *BODY, *JOB_CHANGE, Kind.TOO_MANY_REQUESTS, Kind.IDEMPOTENCY_MISMATCH),
    },
    openapi_extra={"security": security("jobs:write"), **body(BackfillBody, examples.BACKFILL)},
)
async def backfill_job(
    job_id: JobId, request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Runs the job's occurrences in `[from, to)`, in the background: what the schedule asks for goes first.

    `missing` runs those without a success in the history, under their own keys, and goes back 30 days; `all`
    runs every one, under keys of its own (`+b1`). A paused job takes it, and begins when it is resumed.
    Ten may be under way, else 429.
    """
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    document = await read_object(request)
    asked = parse_model(BackfillBody, document)

    async def start(operation: str) -> JSONResponse:
        now = state.clock()
        async with state.changes.turn(found) as turn:
            view = await turn.view()
            check(asked, view.definition.concurrency, now)
            counted = await count(state.history, found, view.definition, asked)
            if asked.dry_run:
                return _answered(dry_answer(job_id, asked, counted, caller.subject, now), 202)
            change = BackfillRequest(
                from_=asked.from_,
                to=asked.to,
                only=asked.only,
                max_concurrent=asked.max_concurrent,
                total=counted.total,
                past_end=True,
                actor=Actor(by=caller.subject, at=now, operation=operation),
            )
            done = await turn.send(
                UPDATE_BACKFILL, change, BackfillAccepted, update_id=f"{UPDATE_BACKFILL}-{operation}"
            )
        await state.audit.note(
            caller, "backfill", found.job, done.revision, done.revision, change=f"{found.ref} {operation}"
        )
        answer = answer_of(job_id, done.backfill)
        return _answered(answer, 202, Location=f"/v1/jobs/{job_id}/backfills/{answer.id}")

    key = call_key(idempotency_key, caller, f"POST /v1/jobs/{job_id}/backfill", document)
    return await state.once.answer(key, start)


@router.get(
    "/backfills",
    operation_id="listBackfills",
    summary="List a job's backfills",
    response_model=BackfillList,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.NOT_FOUND, Kind.JOB_LOST, Kind.NO_ANSWER,
                       Kind.DATABASE_UNAVAILABLE, Kind.SCHEDULER_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)  # fmt: skip
async def list_backfills(job_id: JobId, state: State, caller: Reader) -> JSONResponse:
    """Those under way and the last twenty that have ended, newest first."""
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    known = await backfills_of(state.temporal, found)
    return _answered(BackfillList(items=[answer_of(job_id, one) for one in known], next_cursor=None))


@router.get(
    "/backfills/{backfill_id}",
    operation_id="getBackfill",
    summary="Read the progress of a backfill",
    response_model=BackfillAnswer,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.NOT_FOUND, Kind.JOB_LOST, Kind.NO_ANSWER,
                       Kind.DATABASE_UNAVAILABLE, Kind.SCHEDULER_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)  # fmt: skip
async def get_backfill(job_id: JobId, backfill_id: BackfillId, state: State, caller: Reader) -> JSONResponse:
    """From the job itself: also while the database is away."""
    number = number_of(backfill_id)
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    for one in await backfills_of(state.temporal, found):
        if one.number == number:
            return _answered(answer_of(job_id, one))
    raise no_such_backfill()


@router.delete(
    "/backfills/{backfill_id}",
    operation_id="cancelBackfill",
    summary="Cancel a backfill",
    response_model=CancelledBackfillAnswer,
    responses=problems(*ALWAYS, *JOB_CHANGE, Kind.INVALID),
    openapi_extra={"security": security("jobs:write")},
)
async def cancel_backfill(
    job_id: JobId, backfill_id: BackfillId, state: State, caller: Writer
) -> JSONResponse:
    """Nothing of it begins after the answer. What has begun goes on to its end and is named in `in_flight`:
    each can be cancelled as an execution. One that has ended is answered as it is."""
    number = number_of(backfill_id)
    found = await state.refs.find(state.temporal, caller.tenant, existing_id(job_id))
    operation = f"{UPDATE_CANCEL_BACKFILL}-{state.random_name()}"
    change = CancelBackfill(
        number=number, actor=Actor(by=caller.subject, at=state.clock(), operation=operation)
    )
    done = await state.changes.send(found, UPDATE_CANCEL_BACKFILL, change, JobChanged, update_id=operation)
    one = next((one for one in done.view.backfills if one.number == number), None)
    if one is None:
        raise no_such_backfill()
    revision = done.view.revision
    await state.audit.note(
        caller, "cancel backfill", found.job, revision, revision, change=f"{found.ref} b{number}"
    )
    answer = answer_of(job_id, one).model_dump(mode="json", by_alias=True)
    return JSONResponse({**answer, "in_flight": in_flight_document(done.in_flight)})


def _answered(answer: BackfillAnswer | BackfillList, status: int = 200, **headers: Any) -> JSONResponse:
    return JSONResponse(answer.model_dump(mode="json", by_alias=True), status, headers)
