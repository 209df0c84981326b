"""The bodies clients send, beside the definition itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from api.filters import JobIdFilter, labels_of, not_before
from workflows.contracts.backfill import Only
from workflows.contracts.base import Duration, Instant
from workflows.contracts.bulk import BulkFilter, JobAction, LetterFilter
from workflows.contracts.definition import JobDefinition
from workflows.contracts.group import GROUP_LIMIT_MAX
from workflows.contracts.names import JOB_ID_PATTERN, REQUEST_PATTERN
from workflows.contracts.records import Outcome
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
    """Absent: made from the Idempotency-Key, or generated."""
    paused: bool = False
    """Whether it starts paused; a change of the job leaves its pause alone."""


class BatchBody(RequestBody):
    jobs: list[JobRequest] = Field(
        min_length=1, max_length=BATCH_MAX, description="Each as for the creation of one job."
    )


class JobPatch(RequestBody):
    """A JSON merge patch over the definition: any of its fields; ``schedule`` and ``target`` whole."""

    model_config = ConfigDict(extra="allow")


class PauseBody(RequestBody):
    reason: str = Field(default="", max_length=500, description="For people; shown with the job.")
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


class HeartbeatBody(RequestBody):
    """Nothing to say; an empty body does."""


class CompleteBody(RequestBody):
    answer: Any = Field(default=None, description="Any JSON, or a text; at most 4 KiB of it are kept.")


class FailBody(RequestBody):
    error: str = Field(
        default="the target reported a failure",
        min_length=1,
        max_length=4096,
        description="What went wrong, for people; the first 500 characters are kept.",
    )
    retryable: bool = Field(default=True, description="False: no retry can help.")
    retry_after: Annotated[float, Field(ge=0)] | Duration | None = Field(
        default=None, description="Earliest retry, in seconds or ISO 8601; an hour at most counts."
    )


def _labels(labels: list[str] | str) -> list[str] | str:
    labels_of([labels] if isinstance(labels, str) else labels)
    return labels


JobStatus = Literal["active", "paused", "completed"]


class BulkFilterBody(RequestBody):
    """Which jobs, as in the list of jobs; all conditions hold. An empty filter is all jobs."""

    status: list[JobStatus] | JobStatus = Field(default=[], description="One of them, or a list.")
    label: Annotated[list[str] | str, AfterValidator(_labels)] = Field(
        default=[], max_length=500, description="`name=value`, or a list of them; all must hold."
    )
    target: str | None = Field(
        default=None, max_length=500, description="A kind of target, or part of its URL."
    )
    outcome: list[Outcome] | Outcome = Field(default=[], description="Of the last execution.")
    q: str | None = Field(default=None, max_length=200, description="Part of id or description, in any case.")

    def wanted(self) -> BulkFilter:
        labels = [self.label] if isinstance(self.label, str) else self.label
        return BulkFilter(
            status=[self.status] if isinstance(self.status, str) else self.status,
            labels=labels_of(labels),
            target=self.target,
            outcome=[self.outcome] if isinstance(self.outcome, str) else self.outcome,
            q=self.q,
        )


class BulkBody(RequestBody):
    filter: BulkFilterBody
    action: JobAction = Field(description="What is done with each.")
    dry_run: bool = Field(default=False, description="Only count, and name the first jobs.")


class RedriveBody(RequestBody):
    force: bool = Field(default=False, description="Past the job's gate and group, beside what is active.")


class RedriveManyBody(RequestBody):
    """Which dead letters; an empty body is all of them."""

    job: JobIdFilter | None = Field(default=None, description="Of the jobs with this id.")
    since: Instant | None = Field(default=None, description="From this scheduled time on.")
    until: Instant | None = Field(
        default=None, description="Before this scheduled time; not earlier than `since`."
    )

    @field_validator("until")
    @classmethod
    def _can_match(cls, until: datetime | None, info: ValidationInfo) -> datetime | None:
        return not_before(until, info.data.get("since"))

    def wanted(self) -> LetterFilter:
        return LetterFilter(job=self.job, since=self.since, until=self.until)


class RerunBody(RequestBody):
    force: bool = Field(default=False, description="Past the job's gate and group, beside what is active.")
    body: Any = Field(default=None, description="Sent instead of the target's body; null sends none.")
    target_body: bool = Field(
        default=False,
        description="Of a manual run: send the target's body. A body of its own is not kept, so one of "
        "`body` and `target_body` must be given.",
    )


class GroupBody(RequestBody):
    limit: int = Field(ge=1, le=GROUP_LIMIT_MAX, description="Runs that may have a place at once.")


class TenantPatch(RequestBody):
    """A JSON merge patch over the tenant's settings; null gives a setting its default back."""

    alert_url: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Where incidents are sent, by the rules of a target's URL. Null: the installation's.",
    )


class BackfillBody(RequestBody):
    model_config = ConfigDict(populate_by_name=True)

    from_: Instant = Field(alias="from", description="The first instant of the range.")
    to: Instant = Field(description="Its end, which is not part of it; not in the future.")
    only: Only = Field(
        default="missing",
        description="`missing`: those without a success in the history; `all`: every one.",
    )
    max_concurrent: int = Field(
        default=1, ge=1, le=100, description="More than one needs the concurrency policy `allow`."
    )
    dry_run: bool = Field(default=False, description="Only count, and name the first occurrences.")


class PreviewBody(RequestBody):
    model_config = ConfigDict(populate_by_name=True)

    schedule: Schedule
    spread: Duration | None = Field(default=None, description="As in a job; shown in `fires_at`.")
    from_: Instant | None = Field(default=None, alias="from", description="Absent: now.")
    count: int = Field(default=10, ge=1, le=MAX_COUNT, description="Occurrences to show.")


REQUEST_MODELS: tuple[type[BaseModel], ...] = (
    JobRequest, BatchBody, JobPatch, PauseBody, ResumeBody, TriggerBody, SkipBody, CancelBody,
    HeartbeatBody, CompleteBody, FailBody, BulkFilterBody, BulkBody, BackfillBody, RedriveBody,
    RedriveManyBody, RerunBody, GroupBody, PreviewBody, TenantPatch,
)  # fmt: skip
