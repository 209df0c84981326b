"""One action on many jobs: what is asked, how it goes on, what it says of itself."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from workflows.contracts.actor import Actor
from workflows.contracts.base import Contract, Instant
from workflows.contracts.records import Outcome

BULKS_MAX = 3
"""Bulks of one tenant that may be under way at once."""
PROBLEMS_KEPT = 20
SAMPLE = 20

JobAction = Literal["pause", "resume", "delete", "trigger"]
BulkAction = Literal["pause", "resume", "delete", "trigger", "redrive"]
"""``redrive`` is done with dead letters, the others with jobs."""


class BulkFilter(Contract):
    """Which jobs: all conditions hold, as in the list of jobs; an empty one leaves all in."""

    status: list[Literal["active", "paused", "completed"]] = []
    labels: dict[str, str] = {}
    target: str | None = None
    outcome: list[Outcome] = []
    q: str | None = None


class LetterFilter(Contract):
    """Which dead letters: of one job id, ``since <= scheduled_time < until``."""

    job: str | None = None
    since: Instant | None = None
    until: Instant | None = None


class BulkOrder(Contract):
    """What was asked, by whom, and when: what is created later is not concerned."""

    tenant: str
    id: str
    action: BulkAction
    filter: BulkFilter = BulkFilter()
    letters: LetterFilter = LetterFilter()
    dry_run: bool = False
    actor: Actor
    request_id: str = ""


class BulkJob(Contract):
    """A job, or the dead letter of a job."""

    job: str
    ref: str
    key: str = ""
    """Of the dead letter."""


class BulkCount(Contract):
    """How many jobs match, and the first of them by id."""

    matched: int
    sample: list[str] = []


class BulkPageAsked(Contract):
    order: BulkOrder
    cursor: str | None = None


class BulkPage(Contract):
    """The next jobs by id."""

    jobs: list[BulkJob]
    next_cursor: str | None = None


class BulkStep(Contract):
    """Jobs to which the action is to be applied."""

    order: BulkOrder
    jobs: list[BulkJob]


class BulkOutcome(Contract):
    """What became of one job. ``kind`` is a type of ``failures``; None: the action was applied."""

    job: str
    ref: str
    key: str = ""
    at: Instant
    revision: int | None = None
    kind: str | None = None
    message: str = ""


class BulkNotes(Contract):
    """What the audit log is to be told."""

    order: BulkOrder
    outcomes: list[BulkOutcome]


class BulkState(Contract):
    """All a bulk is; passed on at every continue-as-new. Mutable: its workflow is its only writer."""

    model_config = ConfigDict(frozen=False)

    order: BulkOrder
    counted: bool = False
    matched: int = 0
    sample: list[str] = []
    done: int = 0
    failed: int = 0
    problems: list[BulkOutcome] = []
    """The first :data:`PROBLEMS_KEPT` jobs that could not be changed."""
    cursor: str | None = None
    last_page: bool = False
    pending: list[BulkJob] = []
    """The rest of the page that is under way."""
    ended_at: Instant | None = None
