"""Many jobs in one call: each is created, or refused, for itself."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from api import examples
from api.access import State, Writer
from api.auth.principal import Principal
from api.body import BATCH_MAX_BYTES, read_object
from api.idempotency import IdempotencyKey, fingerprint, parse_key
from api.invalid import escape
from api.jobs.answers import BatchAnswer
from api.jobs.creation import NewJob, initial_state, initial_view
from api.jobs.intake import parse_intake, settle_new
from api.jobs.reading import document_of_row, document_of_view
from api.openapi import body, problems, security
from api.problem_table import LATER, problem_for
from api.problems import Kind, ProblemError, invalid
from api.requests import BATCH_MAX, BatchBody
from api.routers.documented import ALWAYS, BODY, CREATE_CALL, INTEGER, KeyHeader
from api.state import AppState
from infra.database.admission import Reservation

router = APIRouter(prefix="/v1/jobs", tags=["Jobs"])


@router.post(
    "/batch",
    operation_id="createJobs",
    summary="Create many jobs",
    response_model=BatchAnswer,
    responses={
        200: {"headers": {"Retry-After": {"description": "Some may be tried again.", "schema": INTEGER}}},
        **problems(
            *ALWAYS, *BODY, Kind.IDEMPOTENCY_MISMATCH, Kind.SCHEDULER_UNAVAILABLE, Kind.DATABASE_UNAVAILABLE
        ),
    },
    openapi_extra={"security": security("jobs:write"), **body(BatchBody, examples.BATCH)},
)
async def create_jobs(
    request: Request, state: State, caller: Writer, idempotency_key: KeyHeader = None
) -> JSONResponse:
    """Up to 200 jobs, a result for each in order. A repeat under the same `Idempotency-Key` is safe.

    With `Retry-After` some results are 429 or 503: send the whole batch again under the same key then.

    The whole body is at most 4 MiB, each definition 64 KiB.
    """
    document = await read_object(request, limit=BATCH_MAX_BYTES)
    items = _items(document)
    key = parse_key(idempotency_key, tenant=caller.tenant, call="POST /v1/jobs/batch", body=document)

    async def create(_: str) -> JSONResponse:
        """Named by nothing: each job has a key of its own, made from the batch's."""
        return await _answer(state, caller, items, key)

    return await state.once.answer(key, create)


async def _answer(
    state: AppState, caller: Principal, items: list[dict[str, Any]], key: IdempotencyKey | None
) -> JSONResponse:
    results: list[dict[str, Any]] = [{} for _ in items]
    news: dict[int, NewJob] = {}
    now = state.clock()
    for place, item in enumerate(items):
        await asyncio.sleep(0)  # judging 200 definitions takes its time; others are served meanwhile
        try:
            news[place] = settle_new(
                parse_intake(item),
                caller,
                fingerprint=fingerprint(CREATE_CALL, item),
                key=f"batch {key.derive('batch')} {place}" if key else None,
                now=now,
                settings=state.settings,
            )
        except ProblemError as problem:
            results[place] = _refused(problem)
    for place, result in (await _created(state, caller, news)).items():
        results[place] = result
    unfinished = any(result["status"] in (429, 503) for result in results)
    return JSONResponse({"results": results}, headers=LATER if unfinished else None)


def _items(document: dict[str, Any]) -> list[dict[str, Any]]:
    if unknown := sorted(document.keys() - {"jobs"}):
        raise invalid("There is no such field; there is `jobs`.", f"/{escape(unknown[0])}")
    items = document.get("jobs")
    if not isinstance(items, list) or not 1 <= len(items) <= BATCH_MAX:
        raise invalid(f"`jobs` is a list of 1 to {BATCH_MAX} jobs.", "/jobs")
    for place, item in enumerate(items):
        if not isinstance(item, dict):
            raise invalid("A job is a JSON object.", f"/jobs/{place}")
    return items


async def _created(state: AppState, caller: Principal, news: dict[int, NewJob]) -> dict[int, dict[str, Any]]:
    if not news:
        return {}
    made = await state.creation.create_all(state.temporal, list(news.values()))
    results = {}
    for (place, new), outcome in zip(news.items(), made, strict=True):
        if not isinstance(outcome, Reservation):
            results[place] = _refused(problem_for(outcome) or ProblemError(Kind.INTERNAL, "A fault of ours."))
        elif outcome.kind == "replay":
            results[place] = {"status": 201, "job": document_of_row(outcome.job, new.accepted)}
        else:
            started = initial_view(initial_state(outcome.job, paused=new.paused))
            job = document_of_view(caller.tenant, started, new.accepted)
            results[place] = {"status": 201, "job": job}
    return results


def _refused(problem: ProblemError) -> dict[str, Any]:
    return {"status": problem.kind.status, "problem": problem.document()}
