"""What a schedule means, before it is used: the same verdict, for the same reason, as a creation."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from api import examples
from api.access import Reader, State
from api.body import read_object
from api.definitions import parse_model
from api.openapi import body, problems, security
from api.requests import PreviewBody
from api.routers.documented import ALWAYS, BODY
from workflows.contracts.base import Instant, rfc3339
from workflows.domain.cron import hash_seed
from workflows.domain.describe import describe
from workflows.domain.preview import next_occurrences
from workflows.domain.recurrence import compile_schedule
from workflows.domain.resolve import initial_cursor, resolve

router = APIRouter(prefix="/v1/schedules", tags=["Schedules"])


class PreviewedOccurrence(BaseModel):
    scheduled_time: Instant
    fires_at: Instant = Field(description="Moved by the spread, where one is given.")
    local: str = Field(description="The same instant in the schedule's zone.")
    note: str | None = Field(description="Why a clock change concerns this occurrence.")


class Preview(BaseModel):
    """What a schedule means."""

    model_config = ConfigDict(populate_by_name=True)

    description: str
    class_: Literal["fixed-time", "wildcard", "interval", "once"] = Field(
        alias="class", description="Which rule applies at clock changes."
    )
    occurrences: list[PreviewedOccurrence]


@router.post(
    "/preview",
    operation_id="previewSchedule",
    summary="Preview a schedule",
    response_model=Preview,
    responses=problems(*ALWAYS, *BODY),
    openapi_extra={"security": security("jobs:read"), **body(PreviewBody, examples.PREVIEW)},
)
async def preview_schedule(request: Request, state: State, caller: Reader) -> JSONResponse:
    """The verdict is that of a creation now; `from` only says where the list begins.

    Stateless. `H` and `spread` depend on the job's id, so they differ from those of a job."""
    asked = parse_model(PreviewBody, await read_object(request))
    now = state.clock()
    schedule = resolve(
        asked.schedule,
        now=now,
        default_timezone=state.settings.default_timezone,
        tenant=caller.tenant,
        spread=asked.spread,
    )
    recurrence = compile_schedule(schedule, tenant=caller.tenant, spread=asked.spread)
    after = asked.from_ if asked.from_ is not None else initial_cursor(schedule, now)
    occurrences = [
        {
            "scheduled_time": rfc3339(found.scheduled_time),
            "fires_at": rfc3339(found.fires_at),
            "local": found.local,
            "note": found.note,
        }
        for found in next_occurrences(recurrence, after, asked.count)
    ]
    description = describe(schedule, recurrence.zone, hash_seed(caller.tenant, ""))
    return JSONResponse({"description": description, "class": recurrence.kind, "occurrences": occurrences})
