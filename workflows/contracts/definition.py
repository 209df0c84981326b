"""A job's definition. Only ``schedule`` and ``target`` are required."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from workflows.contracts.base import Duration, Instant, PublicContract
from workflows.contracts.names import GROUP_PATTERN
from workflows.contracts.schedule import CatchUp, ExceptWindow, Schedule

DEFINITION_MAX_BYTES = 64 * 1024
"""Size of a whole definition as JSON, its body included."""

RESPONSE_MAX = timedelta(hours=6)
"""The longest that a target's answer is waited for, and a callback job's 202 too."""

EXCEPT_MAX = 100
"""Exceptions of a schedule."""

SuccessRule = Annotated[str, Field(pattern=r"^([1-5]xx|[1-5][0-9][0-9])$")]


class HttpTarget(PublicContract):
    """One HTTP request, without redirects."""

    type: Literal["http"] = "http"
    """The kind of target."""
    url: str = Field(min_length=1, max_length=4096)
    """``http`` or ``https``, without user name and password. Each address it resolves to must be public,
    or in a network that the installation allows."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] = "POST"
    """Of the request."""
    headers: dict[str, str] = {}
    """At most 64, but none that the connection or Carillon sets."""
    body: Any = None
    """Any JSON; null sends no body."""
    success: list[SuccessRule] = Field(default=["2xx"], min_length=1, max_length=32)
    """Status codes (``"204"``) or classes (``"2xx"``) that count as success."""


Target = HttpTarget
"""The kinds of target built so far; later kinds join here as a union discriminated by ``type``, which is
absent from the input of an attempt where it is ``http``."""


class Retry(PublicContract):
    """Backoff between attempts: ``initial_interval * factor ** (n - 1)``, bounded, then jittered."""

    max_attempts: int = Field(default=5, ge=1, le=100)
    """The first one included."""
    initial_interval: Duration = timedelta(seconds=10)
    """From the end of the first attempt to the second."""
    factor: float = Field(default=2.0, ge=1.0, le=100.0)
    """By how much each further interval is longer than the one before."""
    max_interval: Duration = timedelta(minutes=10)
    """The longest interval. A target's Retry-After may raise it, up to an hour."""
    jitter: float = Field(default=0.2, ge=0.0, le=1.0)
    """Share of the interval by which it may grow or shrink, by a stable hash of the execution id."""


class Concurrency(PublicContract):
    """What happens when an occurrence falls due while its predecessor is active."""

    policy: Literal["forbid", "allow", "replace", "queue"] = "forbid"
    """``forbid`` skips it, ``queue`` lets it wait, ``replace`` stops the active run for it, ``allow`` runs
    both."""
    limit: int = Field(default=10, ge=1, le=1000)
    """Under ``allow``: runs at once; further ones wait."""
    max_queued: int = Field(default=10, ge=1, le=1000)
    """Under ``queue`` and ``allow``: occurrences that may wait; the oldest beyond it are skipped."""
    group: str | None = Field(default=None, pattern=f"^{GROUP_PATTERN}$")
    """Jobs that name one group run at most as many at once as its limit says."""


class Alerts(PublicContract):
    """When an incident is opened, beside those that always are."""

    no_success_for: Annotated[Duration, Field(ge=timedelta(seconds=1))] | None = None
    """When nothing has succeeded for so long, a second at least; null: never."""
    consecutive_skips: int | None = Field(default=3, ge=1)
    """When so many occurrences in a row were skipped for a run, or a line, in the way; null: never."""
    consecutive_failures: int | None = Field(default=None, ge=1)
    """When so many executions in a row ended without success; null: never."""


class JobDefinition(PublicContract):
    """Everything a client decides about a job but its id. Stored with its schedule resolved."""

    description: str = Field(default="", max_length=2000)
    """For people."""
    labels: dict[str, str] = {}
    """At most 64 names and values to filter by, of up to 63 and 255 characters."""
    priority: int = Field(default=3, ge=1, le=5)
    """Among runs of the tenant that are due at once: 1 goes first."""
    schedule: Schedule
    spread: Duration | None = None
    """Moves the job by a stable offset of less than this, 7 days at most; ``scheduled_time`` stays."""
    starts_at: Instant | None = None
    """No occurrence before it."""
    ends_at: Instant | None = None
    """No occurrence after it."""
    max_runs: int | None = Field(default=None, ge=1)
    """The job is completed after so many scheduled occurrences that ran; null: never."""
    except_: list[ExceptWindow] = Field(
        default=[], max_length=EXCEPT_MAX, alias="except", serialization_alias="except"
    )
    """Instants left out of the schedule."""
    delete_after: Duration | None = timedelta(days=7)
    """How long a completed job stays; null: until it is deleted."""
    target: Target
    timeout: Annotated[Duration, Field(ge=timedelta(milliseconds=100), le=timedelta(days=30))] = timedelta(
        minutes=5
    )
    """The longest an attempt may take, from its firing to the end of the answer: 0.1 s to 6 hours, up to
    30 days with ``completion: callback``."""
    max_duration: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(days=30))] = timedelta(
        days=1
    )
    """The longest an execution may take, from its first firing on, attempts and waits together: 1 s to 30
    days."""
    heartbeat_timeout: Annotated[Duration, Field(ge=timedelta(seconds=3), le=timedelta(hours=1))] = timedelta(
        seconds=30
    )
    """The lease, 3 s to an hour: a worker, or a target that works on a callback, that is silent for so long
    has lost its run, which is delivered again."""
    max_reaps: int = Field(default=3, ge=0, le=100)
    """How often the lease may be lost before the execution is a dead letter."""
    completion: Literal["response", "callback"] = "response"
    """What ends a run: the target's answer, or what the target reports after it has answered 202."""
    retry: Retry = Retry()
    concurrency: Concurrency = Concurrency()
    catch_up: CatchUp = CatchUp()
    alerts: Alerts = Alerts()
    pause_after: int | None = Field(default=None, ge=1)
    """Pauses the job, with an incident, after so many executions in a row without success; null: never."""
