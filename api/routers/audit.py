"""The audit log: who changed what, when, from which revision to which."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from api.access import Reader, State
from api.openapi import problems, security
from api.problems import Kind
from api.queries import AuditQuery
from api.routers.documented import ALWAYS
from infra.database.audit import AuditEntry
from workflows.contracts.base import Instant

router = APIRouter(prefix="/v1/audit", tags=["Audit"])


class AuditAnswer(BaseModel):
    """One accepted change."""

    model_config = ConfigDict(frozen=True)

    id: str
    at: Instant
    by: str = Field(description="The token's `sub`.")
    operation: str = Field(description="What was done.", examples=["create", "patch", "pause"])
    job: str | None = Field(description="Null for a change that concerns no single job.")
    from_revision: int | None = Field(description="Null: there was no job before.")
    to_revision: int | None = Field(description="Null: there is no job any more.")
    request_id: str = Field(description="The `X-Request-Id` of the call that was answered with the change.")


class AuditPage(BaseModel):
    items: list[AuditAnswer]
    next_cursor: str | None


@router.get(
    "",
    operation_id="listAudit",
    summary="Read the audit log",
    response_model=AuditPage,
    responses=problems(*ALWAYS, Kind.INVALID, Kind.DATABASE_UNAVAILABLE),
    openapi_extra={"security": security("jobs:read")},
)
async def list_audit(state: State, caller: Reader, query: Annotated[AuditQuery, Query()]) -> JSONResponse:
    """Every accepted change of the tenant's jobs, newest first; `by` is the token's `sub`."""
    page = await state.audit_log.list(
        caller.tenant,
        job=query.job,
        by=query.by,
        since=query.since,
        until=query.until,
        limit=query.limit,
        cursor=query.cursor,
    )
    items = [_document(entry) for entry in page.items]
    return JSONResponse({"items": items, "next_cursor": page.next_cursor})


def _document(entry: AuditEntry) -> dict[str, object]:
    shown = AuditAnswer.model_validate(
        {name: value for name, value in asdict(entry).items() if name != "tenant"}
    )
    return shown.model_dump(mode="json")
