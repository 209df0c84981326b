"""The query parameters of lists. A parameter that does not exist is refused, not ignored."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

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


class _ByDefinition(_List):
    label: list[str] = Field(
        default=[], max_length=20, description="`name=value`; may be repeated, all must hold."
    )
    target: str | None = Field(
        default=None, max_length=500, description="A kind of target, or part of its URL."
    )

    @field_validator("label")
    @classmethod
    def _has_a_value(cls, labels: list[str]) -> list[str]:
        for label in labels:
            if "=" not in label:
                raise ValueError(
                    f"a label is given as name=value, such as team=billing; not as {label[:80]!r}"
                )
        return labels

    def labels(self) -> dict[str, str]:
        pairs = (label.partition("=") for label in self.label)
        return {name: value for name, _, value in pairs}


class JobQuery(_ByDefinition):
    status: list[Literal["active", "paused", "completed"]] = Field(default=[], description="May be repeated.")
    outcome: list[Outcome] = Field(default=[], description="Of the last execution; may be repeated.")
    q: str | None = Field(default=None, max_length=200, description="Part of id or description, in any case.")
    group: str | None = Field(
        default=None, max_length=200, description="The concurrency group that the job names."
    )
    sort: Literal["id", "-created_at"] = "id"


class GroupQuery(_List):
    pass


class ExecutionQuery(_List):
    outcome: list[Outcome] = Field(default=[], description="May be repeated.")
    trigger: list[Trigger] = Field(default=[], description="May be repeated.")
    since: QueryInstant | None = Field(default=None, description="From this scheduled time on.")
    until: QueryInstant | None = Field(default=None, description="Before this scheduled time.")


class TenantExecutionQuery(ExecutionQuery, _ByDefinition):
    """``label`` and ``target`` are those of the job's present definition."""

    job: str | None = Field(
        default=None, max_length=200, description="Of the jobs with this id, of every generation."
    )


class LetterQuery(_List):
    job: str | None = Field(
        default=None, max_length=200, description="Of the jobs with this id, of every generation."
    )
    since: QueryInstant | None = Field(default=None, description="From this scheduled time on.")
    until: QueryInstant | None = Field(default=None, description="Before this scheduled time.")


class AuditQuery(_List):
    job: str | None = Field(default=None, max_length=200, description="Changes of the job with this id.")
    by: str | None = Field(default=None, max_length=255, description="Changes by this `sub`.")
    since: QueryInstant | None = Field(default=None, description="From this instant on.")
    until: QueryInstant | None = Field(default=None, description="Before this instant.")


class EventQuery(_Query):
    job: str | None = Field(default=None, max_length=200, description="Of the job with this id only.")


class DeleteQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    running: Literal["finish", "cancel"] = Field(
        default="finish", description="What becomes of a run that is in flight."
    )
