"""The bodies clients send, beside the definition itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workflows.contracts.base import Duration, Instant
from workflows.contracts.definition import JobDefinition
from workflows.contracts.names import JOB_ID_PATTERN, REQUEST_PATTERN
from workflows.contracts.schedule import Schedule
from workflows.domain.preview import MAX_COUNT

BATCH_MAX = 200
"""Jobs in one batch."""


class RequestBody(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class JobRequest(JobDefinition):
    """A job to create: a definition, its id (generated when absent), and whether it starts paused."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(default=None, pattern=f"^{JOB_ID_PATTERN}$")
    paused: bool = False


class BatchBody(RequestBody):
    jobs: list[JobRequest] = Field(min_length=1, max_length=BATCH_MAX)


class JobPatch(RequestBody):
    """A JSON merge patch over the definition: any of its fields; ``schedule`` and ``target`` whole."""

    model_config = ConfigDict(extra="allow")


class PauseBody(RequestBody):
    reason: str = Field(default="", max_length=500)
    until: Instant | None = Field(default=None, description="Resumes by itself then; absent: when asked to.")


class ResumeBody(RequestBody):
    """Nothing to say; an empty body does."""


class TriggerBody(RequestBody):
    request: str | None = Field(
        default=None,
        pattern=f"^{REQUEST_PATTERN}$",
        description="Names this run; the same request runs once. Derived from the Idempotency-Key if absent.",
    )
    force: bool = Field(default=False, description="Run beside an active run, instead of a 409.")
    body: Any = Field(default=None, description="Sent instead of the target's body; null sends none.")


class SkipBody(RequestBody):
    scheduled_time: Instant = Field(description="The `scheduled_time` of one of the job's next runs.")


class CancelBody(RequestBody):
    """Nothing to say; an empty body does."""


class PreviewBody(RequestBody):
    model_config = ConfigDict(populate_by_name=True)

    schedule: Schedule
    spread: Duration | None = None
    from_: Instant | None = Field(default=None, alias="from", description="Absent: now.")
    count: int = Field(default=10, ge=1, le=MAX_COUNT)


REQUEST_MODELS: tuple[type[BaseModel], ...] = (
    JobRequest, BatchBody, JobPatch, PauseBody, ResumeBody, TriggerBody, SkipBody, CancelBody,
    PreviewBody,
)  # fmt: skip
