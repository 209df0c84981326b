"""A backfill: occurrences of the past that are run now, as a cursor in the job's state."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import ConfigDict, Field

from workflows.contracts.actor import Actor
from workflows.contracts.base import Contract, Duration, Instant
from workflows.contracts.schedule import ExceptWindow, Schedule

BACKFILLS_OPEN = 10
BACKFILLS_KEPT = 20
"""Ended ones whose progress can still be read, newest."""
PAGE = 50
RAN_KEPT = 100
COUNT_MAX = 100_000
"""Occurrences one backfill may have."""
HISTORY_KEPT = timedelta(days=30)
"""How far back the history tells what has succeeded."""

Only = Literal["missing", "all"]


class Timing(Contract):
    """What of a definition decides when it runs. ``schedule`` is a resolved one."""

    schedule: Schedule
    spread: Duration | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    except_: list[ExceptWindow] = []


class Paged(Contract):
    """An occurrence that waits for its turn."""

    at: Instant
    """Its nominal instant."""
    attempt: int = 1
    """The attempt to begin with: execution ids of earlier ones are never used again."""


class Backfill(Contract):
    """One backfill of ``[from_, to)``. Mutable, part of the job's state."""

    model_config = ConfigDict(frozen=False, populate_by_name=True)

    number: int
    """Counts the backfills of a job's generation; ``b{number}`` is its id."""
    from_: Instant = Field(alias="from")
    to: Instant
    only: Only = "missing"
    max_concurrent: int = 1
    by: str = ""
    at: Instant
    operation: str = ""
    """The call that asked for it."""
    past_end: bool = False
    """See :class:`BackfillRequest`."""
    timing: Timing | None = None
    """Set once an edit has changed it: what it was when the backfill was accepted."""
    cursor: Instant
    """Occurrences before this nominal instant are paged already."""
    asked: bool = False
    """``cursor`` is an occurrence, and not just the beginning of the range."""
    page: list[Paged] = []
    """Occurrences that wait for their turn, ascending."""
    ran: dict[str, int] = {}
    """What has ended since the last page came, by key: its last attempt, or 0 for a success. Newest last."""
    all_paged: bool = False
    begun_until: Instant | None = None
    """The last occurrence that was begun: one that was put back is not counted twice."""
    total: int
    """Occurrences to run, as counted when it was accepted."""
    started: int = 0
    succeeded: int = 0
    dead_lettered: int = 0
    cancelled: int = 0
    status: Literal["running", "done", "cancelled"] = "running"
    reason: str | None = None
    """Why it was cancelled."""
    ended_at: Instant | None = None
    turned_at: int = 0
    """The job's turn at which a slice of it ran last."""


class BackfillRequest(Contract):
    from_: Instant = Field(alias="from")
    to: Instant
    only: Only = "missing"
    max_concurrent: int = 1
    total: int
    """As the API counted it."""
    past_end: bool = False
    """Once nothing of the schedule is to come, what lies behind the last run is run as well. Calls that 0.3.0
    recorded wait for the schedule to get there, which after ``max_runs`` it never does."""
    actor: Actor


class BackfillAccepted(Contract):
    backfill: Backfill
    revision: int


class CancelBackfill(Contract):
    number: int
    actor: Actor


class PageAsked(Contract):
    """Which occurrences of ``[from_, to)`` are to be run next."""

    tenant: str
    job: str
    ref: str
    timing: Timing
    from_: Instant
    to: Instant
    settled: Instant
    """The job's cursor mostly: what lies behind it is the loop's own matter still."""
    only: Only
    limit: int = PAGE


class BackfillPage(Contract):
    occurrences: list[Paged]
    cursor: Instant
    """The occurrence with which the next page begins; one that is not settled yet has to wait."""
    last: bool
