"""One action on many jobs, and how far it has come."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import Reader, State, Writer
from api.body import read_object
from api.bulks import BulkAnswer, no_such_bulk
from api.definitions import parse_model
from api.openapi import body, problems, security
from api.problems import Kind
from api.request_id import current_request_id
from api.requests import BulkBody
from api.routers.changed import call_key
from api.routers.documented import ALWAYS, BODY, TEXT, KeyHeader
from workflows.contracts.actor import Actor
from workflows.contracts.bulk import BulkOrder
from workflows.contracts.names import REQUEST_PATTERN

router = APIRouter(prefix="/v1", tags=["Jobs"])

BulkId = Annotated[str, Path(description="The `id` of a bulk.", max_length=64)]


@router.post(
    "/jobs/bulk",
    operation_id="changeJobs",
    summary="Do one thing with many jobs",
    status_code=202,
    response_model=BulkAnswer,
    responses={
        202: {
            "description": "The bulk; it goes on by itself.",
            "headers": {"Location": {"description": "Where its progress is.", "schema": TEXT}},
        },
        **problems(
            *ALWAYS, *BODY, Kind.IDEMPOTENCY_MISMATCH, Kind.NO_ANSWER, Kind.BUSY, Kind.SCHEDULER_UNAVAILABLE
        ),
    },
    openapi_extra={"security": security("jobs:write"), **body(BulkBody, examples.BULK)},
)
async def change_jobs(
    request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Pauses, resumes, deletes or triggers every job that the filter matches, at a bounded rate.

    Jobs created later are not concerned. A filter is judged page by page, by id: a job that changes
    meanwhile is judged as it is then. `dry_run` only counts. Three may be under way at once, else 429.
    """
    document = await read_object(request)
    asked = parse_model(BulkBody, document)

    async def start(operation: str) -> JSONResponse:
        order = BulkOrder(
            tenant=caller.tenant,
            id=operation,
            action=asked.action,
            filter=asked.filter.wanted(),
            dry_run=asked.dry_run,
            actor=Actor(by=caller.subject, at=state.clock(), operation=operation),
            request_id=current_request_id(),
        )
        answer = await state.bulks.start(order)
        if not asked.dry_run:
            await state.audit.note(
                caller, f"bulk {asked.action}", None, None, None, change=f"bulk {operation}"
            )
        return JSONResponse(
            answer.model_dump(mode="json"), 202, headers={"Location": f"/v1/bulk/{operation}"}
        )

    return await state.once.answer(call_key(idempotency_key, caller, "POST /v1/jobs/bulk", document), start)


@router.get(
    "/bulk/{bulk_id}",
    operation_id="getBulk",
    summary="Read the progress of a bulk",
    response_model=BulkAnswer,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.NOT_FOUND, Kind.NO_ANSWER, Kind.SCHEDULER_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def get_bulk(bulk_id: BulkId, state: State, caller: Reader) -> JSONResponse:
    """Kept for as long as Temporal keeps what has ended, three days unless it is set."""
    if re.fullmatch(REQUEST_PATTERN, bulk_id) is None:
        raise no_such_bulk()
    answer = await state.bulks.read(caller.tenant, bulk_id)
    return JSONResponse(answer.model_dump(mode="json"))
