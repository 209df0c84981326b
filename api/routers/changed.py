"""What the calls that change a job by an update do alike."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from api.auth.principal import Principal
from api.idempotency import IdempotencyKey, parse_key
from api.jobs.reading import document_of_view
from api.jobs.refs import Found
from api.routers.documented import job_response
from api.state import AppState
from workflows.contracts.base import Contract
from workflows.contracts.job import InFlight, JobChanged


def call_key(
    header: str | None, caller: Principal, call: str, document: dict[str, Any]
) -> IdempotencyKey | None:
    return parse_key(header, tenant=caller.tenant, call=call, body=document)


async def changed_job(
    state: AppState, caller: Principal, found: Found, update: str, request: Contract, operation: str
) -> JSONResponse:
    """Send the update and answer with the job.

    The update's id is the operation's, so that a repeat is answered and not done again.
    """
    changed = await state.changes.change(
        found, update, request, update_id=f"{update}-{operation}", now=state.clock()
    )
    return await answer_changed(state, caller, found, update, changed, operation)


async def answer_changed(
    state: AppState, caller: Principal, found: Found, name: str, changed: JobChanged, operation: str
) -> JSONResponse:
    """Note the change under ``name`` and answer with the job after it."""
    revision = changed.view.revision
    await state.audit.note(caller, name, found.job, revision, revision, change=f"{found.ref} {operation}")
    document = document_of_view(found.tenant, changed.view, state.clock())
    return job_response({**document, "in_flight": in_flight_document(changed.in_flight)})


def in_flight_document(in_flight: list[InFlight]) -> list[dict[str, Any]]:
    return [running.model_dump(mode="json") for running in in_flight]
