"""A job's definition: api.md, section Job. Only ``schedule`` and ``target`` are required."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from workflows.contracts.base import Contract, Duration, Instant
from workflows.contracts.names import GROUP_PATTERN
from workflows.contracts.schedule import CatchUp, ExceptWindow, Schedule

DEFINITION_MAX_BYTES = 64 * 1024
"""Size of a whole definition as JSON, its body included."""

RESPONSE_MAX = timedelta(hours=6)
"""The longest that a target's answer is waited for, and a callback job's 202 too."""

SuccessRule = Annotated[str, Field(pattern=r"^([1-5]xx|[1-5][0-9][0-9])$")]


class HttpTarget(Contract):
    """One HTTP request (semantics.md, Delivery over HTTP). ``body: null`` means no body."""

    type: Literal["http"] = "http"
    url: str = Field(min_length=1, max_length=4096)
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] = "POST"
    headers: dict[str, str] = {}
    body: Any = None
    success: list[SuccessRule] = Field(default=["2xx"], min_length=1, max_length=32)
    """Status codes (``"204"``) or classes (``"2xx"``) that count as success."""


Target = HttpTarget
"""The kinds of target built so far; later kinds join here as a union discriminated by ``type``, which is
absent from the input of an attempt where it is ``http``."""


class Retry(Contract):
    """Backoff between attempts: ``initial_interval * factor ** (n - 1)``, bounded, then jittered."""

    max_attempts: int = Field(default=5, ge=1, le=100)
    initial_interval: Duration = timedelta(seconds=10)
    factor: float = Field(default=2.0, ge=1.0, le=100.0)
    max_interval: Duration = timedelta(minutes=10)
    jitter: float = Field(default=0.2, ge=0.0, le=1.0)
    """Share of the interval by which it may grow or shrink, by a stable hash of the execution id."""


class Concurrency(Contract):
    """What happens when an occurrence falls due while its predecessor is active."""

    policy: Literal["forbid", "allow", "replace", "queue"] = "forbid"
    limit: int = Field(default=10, ge=1, le=1000)
    max_queued: int = Field(default=10, ge=1, le=1000)
    group: str | None = Field(default=None, pattern=f"^{GROUP_PATTERN}$")
    """Jobs that name one group run at most as many at once as its limit says."""


class Alerts(Contract):
    """When an incident is opened, beside those that always are."""

    no_success_for: Annotated[Duration, Field(ge=timedelta(seconds=1))] | None = None
    consecutive_skips: int | None = Field(default=3, ge=1)
    consecutive_failures: int | None = Field(default=None, ge=1)


class JobDefinition(Contract):
    """Everything a client decides about a job but its id. Stored with its schedule resolved."""

    description: str = Field(default="", max_length=2000)
    labels: dict[str, str] = {}
    priority: int = Field(default=3, ge=1, le=5)
    schedule: Schedule
    spread: Duration | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_runs: int | None = Field(default=None, ge=1)
    except_: list[ExceptWindow] = Field(
        default=[], max_length=100, alias="except", serialization_alias="except"
    )
    delete_after: Duration | None = timedelta(days=7)
    """How long a completed job stays (None: until it is deleted)."""
    target: Target
    timeout: Annotated[Duration, Field(ge=timedelta(milliseconds=100), le=timedelta(days=30))] = timedelta(
        minutes=5
    )
    """Beyond :data:`RESPONSE_MAX` only with a callback."""
    max_duration: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(days=30))] = timedelta(
        days=1
    )
    heartbeat_timeout: Annotated[Duration, Field(ge=timedelta(seconds=3), le=timedelta(hours=1))] = timedelta(
        seconds=30
    )
    max_reaps: int = Field(default=3, ge=0, le=100)
    completion: Literal["response", "callback"] = "response"
    retry: Retry = Retry()
    concurrency: Concurrency = Concurrency()
    catch_up: CatchUp = CatchUp()
    alerts: Alerts = Alerts()
    pause_after: int | None = Field(default=None, ge=1)
