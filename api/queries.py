"""The query parameters of lists. A parameter that does not exist is refused, not ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from api.filters import GroupFilter, JobIdFilter, labels_of, not_before
from api.instants import QueryInstant
from workflows.contracts.records import Outcome, Trigger

LIMIT_MAX = 200


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _has_no_nul(cls, value: object) -> object:
        """No name holds one, and PostgreSQL takes none."""
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, str) and "\0" in one for one in values):
            raise ValueError("leave the NUL character out")
        return value


class _List(_Query):
    limit: int = Field(default=50, ge=1, le=LIMIT_MAX, description="Items on a page.")
    cursor: str | None = Field(
        default=None, max_length=2048, description="`next_cursor` of the page before, with the same filters."
    )


class _Range(_List):
    """For lists with ``since`` and ``until``, in this order."""

    @field_validator("until", check_fields=False)
    @classmethod
    def _times_can_match(cls, until: datetime | None, info: ValidationInfo) -> datetime | None:
        return not_before(until, info.data.get("since"))


class _ByDefinition(_List):
    label: list[str] = Field(
        default=[], max_length=20, description="`name=value`; may be repeated, all must hold."
    )
    target: str | None = Field(
        default=None, max_length=500, description="A kind of target, or part of its URL."
    )

    @field_validator("label")
    @classmethod
    def _labels_can_match(cls, labels: list[str]) -> list[str]:
        labels_of(labels)
        return labels

    def labels(self) -> dict[str, str]:
        return labels_of(self.label)


class JobQuery(_ByDefinition):
    status: list[Literal["active", "paused", "completed"]] = Field(default=[], description="May be repeated.")
    outcome: list[Outcome] = Field(default=[], description="Of the last execution; may be repeated.")
    q: str | None = Field(default=None, max_length=200, description="Part of id or description, in any case.")
    group: GroupFilter | None = Field(default=None, description="The concurrency group that the job names.")
    sort: Literal["id", "-created_at"] = "id"


class GroupQuery(_List):
    pass


class ExecutionQuery(_Range):
    outcome: list[Outcome] = Field(default=[], description="May be repeated.")
    trigger: list[Trigger] = Field(default=[], description="May be repeated.")
    since: QueryInstant | None = Field(default=None, description="From this scheduled time on.")
    until: QueryInstant | None = Field(
        default=None, description="Before this scheduled time; not earlier than `since`."
    )


class TenantExecutionQuery(ExecutionQuery, _ByDefinition):
    """``label`` and ``target`` are those of the job's present definition."""

    job: JobIdFilter | None = Field(
        default=None, description="Of the jobs with this id, of every generation."
    )


class LetterQuery(_Range):
    job: JobIdFilter | None = Field(
        default=None, description="Of the jobs with this id, of every generation."
    )
    since: QueryInstant | None = Field(default=None, description="From this scheduled time on.")
    until: QueryInstant | None = Field(
        default=None, description="Before this scheduled time; not earlier than `since`."
    )


class AuditQuery(_Range):
    job: JobIdFilter | None = Field(default=None, description="Changes of the job with this id.")
    by: str | None = Field(default=None, max_length=255, description="Changes by this `sub`.")
    since: QueryInstant | None = Field(default=None, description="From this instant on.")
    until: QueryInstant | None = Field(
        default=None, description="Before this instant; not earlier than `since`."
    )


class EventQuery(_Query):
    job: JobIdFilter | None = Field(default=None, description="Of the job with this id only.")


class DeleteQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    running: Literal["finish", "cancel"] = Field(
        default="finish", description="What becomes of a run that is in flight."
    )
