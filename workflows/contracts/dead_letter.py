"""A dead letter: an execution that ended without success, with its story, until somebody settles it."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import ConfigDict

from workflows.contracts.attempt import Occurrence
from workflows.contracts.base import Contract, Instant
from workflows.contracts.definition import JobDefinition
from workflows.contracts.planning import TenantHints
from workflows.contracts.records import AttemptRow, ExecutionRow

OPEN_A_JOB = 100
"""Open dead letters of one job; beyond them the oldest lives on as a row of the history."""
OPEN_A_TENANT = 10_000
KEPT_FOR = timedelta(days=14)
STORY_MAX = 20
"""Attempts that a dead letter carries itself; the history has all of them."""


class DeadLetter(Contract):
    """What its execution leaves: enough to show it and to run it again, of a deleted job too."""

    tenant: str
    job: str
    ref: str
    execution: ExecutionRow
    occurrence: Occurrence
    """As the schedule, the trigger or the backfill made it: its body is that of the run."""
    definition: JobDefinition
    revision: int
    attempts: list[AttemptRow] = []
    """The last :data:`STORY_MAX` attempts, oldest first, without the targets' answers."""
    next_attempt: int
    """A redrive goes on with this attempt: no execution id is used again."""
    opened_at: Instant
    hints: TenantHints = TenantHints()


class LetterEnded(Contract):
    """The word of a job, or of a run beside it, on a redriven or backfilled occurrence."""

    key: str
    outcome: Literal["succeeded", "cancelled", "replaced", "evicted"]
    """``succeeded`` closes the letter; ``evicted``: the job has too many; else it is open again."""
    at: Instant


class DeadLetterState(Contract):
    """All a dead letter is. Mutable: its workflow is its only writer."""

    model_config = ConfigDict(frozen=False)

    letter: DeadLetter
    status: Literal["open", "redriving", "redriven", "discarded", "expired", "evicted"] = "open"
    expires_at: Instant
    redrives: int = 0
    change: int = 1
    """Grows with each change; a row of the index with a smaller one is older."""
    operations: list[str] = []
