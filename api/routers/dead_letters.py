"""Dead letters: listed, read with every attempt, redriven, discarded."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from api import examples
from api.access import LetterId, Reader, State, Writer
from api.body import read_object
from api.bulks import BulkAnswer
from api.definitions import parse_model
from api.jobs.answers import ExecutionAnswer, execution_document
from api.jobs.executions import locate
from api.jobs.refs import Found
from api.letters import LetterPage, LetterStoryAnswer, letter_document, no_such_letter
from api.openapi import body, problems, security
from api.problems import Kind, ProblemError
from api.queries import LetterQuery
from api.request_id import current_request_id
from api.requests import RedriveBody, RedriveManyBody
from api.routers.changed import call_key
from api.routers.documented import ALWAYS, BODY, CHANGE, TEXT, KeyHeader
from workflows.contracts.actor import Actor
from workflows.contracts.bulk import BulkOrder
from workflows.contracts.dead_letter import DiscardLetter, RedriveLetter

router = APIRouter(prefix="/v1/dead-letters", tags=["Dead letters"])


@router.get(
    "",
    operation_id="listDeadLetters",
    summary="List dead letters",
    response_model=LetterPage,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.DATABASE_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def list_dead_letters(
    state: State, caller: Reader, query: Annotated[LetterQuery, Query()]
) -> JSONResponse:
    """Those that are open or being redriven, the newest occurrence first, of deleted jobs too."""
    page = await state.letter_index.list(
        caller.tenant,
        job=query.job,
        since=query.since,
        until=query.until,
        limit=query.limit,
        cursor=query.cursor,
    )
    items = [letter_document(row) for row in page.items]
    return JSONResponse({"items": items, "next_cursor": page.next_cursor})


@router.get(
    "/{letter_id}",
    operation_id="getDeadLetter",
    summary="Read a dead letter",
    response_model=LetterStoryAnswer,
    responses=problems(*ALWAYS, Kind.NOT_FOUND, Kind.DATABASE_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def get_dead_letter(letter_id: LetterId, state: State, caller: Reader) -> JSONResponse:
    """With every attempt; while the database is away with the last twenty, without the target's answers."""
    _, key = _locate(letter_id, caller.tenant)
    return JSONResponse(await state.letters.read(caller.tenant, key))


@router.post(
    "/{letter_id}/redrive",
    operation_id="redriveDeadLetter",
    summary="Run a dead letter again",
    status_code=202,
    response_model=ExecutionAnswer,
    responses={
        202: {
            "description": "The execution, which goes on.",
            "headers": {"Location": {"description": "Where the execution is.", "schema": TEXT}},
        },
        **problems(
            *ALWAYS, *BODY, *CHANGE, Kind.NOT_FOUND, Kind.RUN_ACTIVE, Kind.IDEMPOTENCY_MISMATCH,
        ),
    },
    openapi_extra={"security": security("jobs:write"), **body(RedriveBody, examples.REDRIVE, required=False)},
)  # fmt: skip
async def redrive_dead_letter(
    letter_id: LetterId,
    request: Request,
    state: State,
    caller: Writer,
    idempotency_key: KeyHeader = None,
) -> JSONResponse:
    """The same key, from the next attempt on, under the job's present definition and in its turn.

    `force` runs it beside whatever is active. Of a deleted job it runs as the job was. While a redrive is
    under way another one is answered with it and begins nothing. A success closes the dead letter.
    """
    found, key = _locate(letter_id, caller.tenant)
    document = await read_object(request, may_be_empty=True)
    asked = parse_model(RedriveBody, document)

    async def redrive(operation: str) -> JSONResponse:
        actor = Actor(by=caller.subject, at=state.clock(), operation=operation)
        redriven = await state.letters.redrive(key, RedriveLetter(force=asked.force, actor=actor))
        if not redriven.repeated:
            revision = redriven.revision
            await state.audit.note(
                caller, "redrive", found.job, revision, revision, change=f"{key} {operation}"
            )
        execution = execution_document(found.job, redriven.execution)
        return JSONResponse(execution, 202, headers={"Location": f"/v1/executions/{execution['id']}"})

    call = f"POST /v1/dead-letters/{letter_id}/redrive"
    return await state.once.answer(call_key(idempotency_key, caller, call, document), redrive)


@router.delete(
    "/{letter_id}",
    operation_id="discardDeadLetter",
    summary="Discard a dead letter",
    status_code=204,
    response_class=Response,
    responses=problems(*ALWAYS, *CHANGE, Kind.NOT_FOUND, Kind.RUN_ACTIVE),
    openapi_extra={"security": security("jobs:write")},
)
async def discard_dead_letter(letter_id: LetterId, state: State, caller: Writer) -> Response:
    """It is not listed any more; its execution stays in the history. Discarded again: 204 still.

    A 409 while its redrive is under way, which is an execution that can be cancelled.
    """
    found, key = _locate(letter_id, caller.tenant)
    operation = state.random_name()
    actor = Actor(by=caller.subject, at=state.clock(), operation=operation)
    if await state.letters.discard(caller.tenant, key, DiscardLetter(actor=actor)):
        await state.audit.note(caller, "discard", found.job, None, None, change=f"{key} {operation}")
    return Response(status_code=204)


@router.post(
    "/redrive",
    operation_id="redriveDeadLetters",
    summary="Run many dead letters again",
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
    openapi_extra={
        "security": security("jobs:write"),
        **body(RedriveManyBody, examples.REDRIVE_MANY, required=False),
    },
)
async def redrive_dead_letters(
    request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Those of a job, of a time, or all, at a bounded rate; those opened later are not concerned.

    It is one of the tenant's bulks: three may be under way at once, else 429.
    """
    document = await read_object(request, may_be_empty=True)
    asked = parse_model(RedriveManyBody, document)

    async def start(operation: str) -> JSONResponse:
        order = BulkOrder(
            tenant=caller.tenant,
            id=operation,
            action="redrive",
            letters=asked.wanted(),
            actor=Actor(by=caller.subject, at=state.clock(), operation=operation),
            request_id=current_request_id(),
        )
        answer = await state.bulks.start(order)
        await state.audit.note(caller, "bulk redrive", asked.job, None, None, change=f"bulk {operation}")
        return JSONResponse(
            answer.model_dump(mode="json"), 202, headers={"Location": f"/v1/bulk/{operation}"}
        )

    call = "POST /v1/dead-letters/redrive"
    return await state.once.answer(call_key(idempotency_key, caller, call, document), start)


def _locate(letter_id: str, tenant: str) -> tuple[Found, str]:
    """Raises 404 for what is no id of the tenant."""
    try:
        return locate(letter_id, tenant)
    except ProblemError:
        raise no_such_letter() from None
