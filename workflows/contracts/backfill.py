"""A backfill: occurrences of the past that are run now, as a cursor in the job's state."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from workflows.contracts.actor import Actor
from workflows.contracts.base import Contract, Duration, Instant
from workflows.contracts.schedule import ExceptWindow, Schedule

BACKFILLS_OPEN = 10
BACKFILLS_KEPT = 20
"""Ended ones whose progress can still be read, newest."""
PAGE = 50
COUNT_MAX = 100_000
"""Occurrences one backfill may have."""

Only = Literal["missing", "all"]


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
    cursor: Instant
    """Occurrences before this nominal instant are paged already."""
    page: list[Instant] = []
    """Nominal instants that wait for their turn, ascending."""
    all_paged: bool = False
    total: int
    """Occurrences to run, as counted when it was accepted."""
    started: int = 0
    succeeded: int = 0
    dead_lettered: int = 0
    cancelled: int = 0
    status: Literal["running", "done", "cancelled"] = "running"
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
    actor: Actor


class CancelBackfill(Contract):
    number: int
    actor: Actor


class PageAsked(Contract):
    """Which occurrences of ``[after, to)`` are to be run next. ``schedule`` is a resolved one."""

    tenant: str
    job: str
    ref: str
    schedule: Schedule
    spread: Duration | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    except_: list[ExceptWindow] = []
    from_: Instant
    to: Instant
    only: Only
    limit: int = PAGE


class BackfillPage(Contract):
    instants: list[Instant]
    cursor: Instant
    """Where the next page begins."""
    last: bool
