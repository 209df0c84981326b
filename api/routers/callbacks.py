"""What the target of a job with callbacks says of its run; the token in the address is the right to it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from activities.targets.answer import kept
from api import examples
from api.access import State
from api.body import read_object
from api.definitions import parse_model
from api.openapi import body, problems
from api.problems import Kind
from api.requests import CompleteBody, FailBody, HeartbeatBody
from api.routers.documented import BODY
from workflows.contracts.callback import CallbackClaims

router = APIRouter(prefix="/v1/callbacks/{token}", tags=["Callbacks"])

_ANSWERS = problems(
    *BODY, Kind.NOT_FOUND, Kind.STALE_CALLBACK, Kind.EXECUTION_ENDED, Kind.GONE, Kind.TOO_MANY_REQUESTS,
    Kind.INTERNAL, Kind.BUSY, Kind.SCHEDULER_UNAVAILABLE,
)  # fmt: skip
_OPEN: dict[str, Any] = {"security": []}


async def _claims(
    token: Annotated[str, Path(description="From the delivery's `Carillon-Callback`.")], state: State
) -> CallbackClaims:
    """The right to one delivery. It runs before any body is read."""
    claims = state.callbacks.claims(token)
    state.request_rate.take(claims.tenant)
    return claims


Claims = Annotated[CallbackClaims, Depends(_claims)]


@router.post(
    "/heartbeat",
    operation_id="heartbeatCallback",
    summary="Renew the lease of a run",
    status_code=204,
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra={**_OPEN, **body(HeartbeatBody, examples.HEARTBEAT, required=False)},
)
async def heartbeat(request: Request, state: State, claims: Claims) -> Response:
    """At least each half of the job's `heartbeat_timeout`. 410: the run was cancelled, stop. 409: this
    delivery has lost its lease, or the attempt has ended; stop as well."""
    parse_model(HeartbeatBody, await read_object(request, may_be_empty=True))
    await state.callbacks.heartbeat(claims)
    return Response(status_code=204)


@router.post(
    "/complete",
    operation_id="completeCallback",
    summary="Report that a run has succeeded",
    status_code=204,
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra={**_OPEN, **body(CompleteBody, examples.COMPLETE, required=False)},
)
async def complete(request: Request, state: State, claims: Claims) -> Response:
    """Counts even before the 202 has been read. The same call again is answered with 204 again."""
    asked = parse_model(CompleteBody, await read_object(request, may_be_empty=True))
    await state.callbacks.complete(claims, _text(asked.answer))
    return Response(status_code=204)


@router.post(
    "/fail",
    operation_id="failCallback",
    summary="Report that a run has failed",
    status_code=204,
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra={**_OPEN, **body(FailBody, examples.FAIL, required=False)},
)
async def fail(request: Request, state: State, claims: Claims) -> Response:
    """A failed attempt: the job's `retry` decides what follows. The same call again is 204 again."""
    asked = parse_model(FailBody, await read_object(request, may_be_empty=True))
    wait = asked.retry_after
    await state.callbacks.fail(
        claims,
        error=kept(asked.error),
        retryable=asked.retryable,
        retry_after_s=wait.total_seconds() if isinstance(wait, timedelta) else wait,
    )
    return Response(status_code=204)


def _text(answer: Any) -> str | None:
    """How an answer is kept: a text as it is, anything else as JSON."""
    if answer is None:
        return None
    return kept(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))
