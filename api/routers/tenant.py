"""The caller's own tenant: what it has settled for itself, and what is wrong now."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from activities.targets.url import check_url
from api import examples
from api.access import Reader, State, TenantWriter
from api.body import PATCH_TYPES, read_object
from api.definitions import parse_model
from api.openapi import body, problems, security
from api.preconditions import etag, parse_if_match
from api.problems import Kind, ProblemError, invalid
from api.requests import TenantPatch
from api.routers.documented import ALWAYS, BODY, ETAG, IfMatchHeader
from api.state import AppState
from api.unbuilt import refuse_unbuilt_settings
from infra.database.tenants import TenantSettings
from workflows.contracts.base import Instant
from workflows.contracts.incident import Incident, IncidentKind, Notice
from workflows.domain.errors import RuleError

router = APIRouter(prefix="/v1/tenant", tags=["Tenant"])

SHOWN = 100
"""Open incidents in one answer."""


class IncidentAnswer(BaseModel):
    """Something that is wrong, since it was told first."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Also the `webhook-id` of its message.")
    kind: IncidentKind
    job: str | None = Field(description="Null for an incident that concerns no single job.")
    key: str | None = Field(description="The execution that showed it last.")
    detail: str
    count: int = Field(description="How often it was seen.")
    opened_at: Instant
    last_at: Instant
    notice: Notice = Field(
        description="What became of its message: `no_alert_url` and `over_limit` were never sent, `failed` "
        "was tried for a day."
    )


class TenantAnswer(BaseModel):
    model_config = ConfigDict(frozen=True)

    tenant: str
    revision: int
    updated_at: Instant | None = Field(description="Null: nothing was ever settled.")
    alert_url: str | None = Field(description="Null: the installation's, if it has one.")
    alerts: Literal["tenant", "installation"] | None = Field(
        description="Whose alert URL incidents are sent to; null: they are only recorded."
    )
    open_incidents: int
    incidents: list[IncidentAnswer] = Field(description=f"The open ones, newest first, {SHOWN} at most.")


@router.get(
    "",
    operation_id="getTenant",
    summary="Read the tenant's settings and incidents",
    response_model=TenantAnswer,
    responses={200: {"headers": ETAG}, **problems(*ALWAYS, Kind.DATABASE_UNAVAILABLE)},
    openapi_extra={"security": security("jobs:read")},
)
async def get_tenant(state: State, caller: Reader) -> JSONResponse:
    """The caller's own tenant. Incidents are those that are open now."""
    return await _answer(state, await state.tenants.read(caller.tenant))


@router.patch(
    "",
    operation_id="patchTenant",
    summary="Change the tenant's settings",
    response_model=TenantAnswer,
    responses={
        200: {"headers": ETAG},
        **problems(*ALWAYS, *BODY, Kind.NOT_BUILT, Kind.REVISION_MISMATCH, Kind.DATABASE_UNAVAILABLE),
    },
    openapi_extra={
        "security": security("tenant:write"),
        **body(TenantPatch, examples.TENANT, media_types=PATCH_TYPES),
    },
)
async def patch_tenant(
    request: Request, state: State, caller: TenantWriter, if_match: IfMatchHeader = None
) -> JSONResponse:
    """A merge patch; null gives a setting its default back. Workers know it after ten seconds at most."""
    wanted = parse_if_match(if_match)
    document = await read_object(request, media_types=PATCH_TYPES)
    refuse_unbuilt_settings(document)
    patch = parse_model(TenantPatch, document)
    if patch.alert_url is not None:
        _check_alert_url(patch.alert_url, state)
    if "alert_url" not in document:
        before = after = await state.tenants.read(caller.tenant)
    else:
        before, after = await state.tenants.set_alert_url(
            caller.tenant,
            patch.alert_url,
            now=state.clock(),
            revisions=None if wanted is None else wanted.revisions,
        )
    kept_as_asked = "alert_url" in document and after.alert_url == patch.alert_url
    if wanted is not None and not kept_as_asked and not wanted.has(after.revision):
        raise ProblemError(
            Kind.REVISION_MISMATCH,
            f"The settings are at revision {after.revision} now, which If-Match does not name. Read them "
            "again, then send the change.",
        )
    if before.revision != after.revision:
        await state.audit.note(caller, "patch tenant", None, before.revision, after.revision)
    return await _answer(state, after)


def _check_alert_url(url: str, state: AppState) -> None:
    try:
        check_url(url, state.settings.allow_networks)
    except RuleError as error:
        raise invalid(str(error), "/alert_url") from None


async def _answer(state: AppState, settings: TenantSettings) -> JSONResponse:
    found = await state.incidents.open(settings.tenant, SHOWN)
    count = len(found) if len(found) < SHOWN else await state.incidents.count_open(settings.tenant)
    answer = TenantAnswer(
        tenant=settings.tenant,
        revision=settings.revision,
        updated_at=settings.updated_at,
        alert_url=settings.alert_url,
        alerts="tenant" if settings.alert_url else "installation" if state.settings.alert_url else None,
        open_incidents=count,
        incidents=[_shown(incident) for incident in found],
    )
    return JSONResponse(answer.model_dump(mode="json"), headers={"ETag": etag(settings.revision)})


def _shown(incident: Incident) -> IncidentAnswer:
    return IncidentAnswer.model_validate(incident.model_dump(include=set(IncidentAnswer.model_fields)))
