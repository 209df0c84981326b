"""A dead letter: an execution that ended without success, with its story, until somebody settles it."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import ConfigDict

from workflows.contracts.actor import Actor
from workflows.contracts.attempt import Occurrence
from workflows.contracts.base import Contract, Instant, rfc3339
from workflows.contracts.definition import JobDefinition
from workflows.contracts.planning import TenantHints
from workflows.contracts.records import AttemptRow, ExecutionRow, Trigger

OPEN_A_JOB = 100
"""Open dead letters of one job; beyond them the oldest lives on as a row of the history."""
OPEN_A_TENANT = 10_000
KEPT_FOR = timedelta(days=14)
STORY_MAX = 20
"""Attempts that a dead letter carries itself; the history has all of them."""

LetterStatus = Literal["open", "redriving", "redriven", "discarded", "expired", "evicted"]
ALIVE_LETTERS: tuple[LetterStatus, ...] = ("open", "redriving")


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

    @property
    def failed_at(self) -> Instant:
        """When its execution ended last. A letter of the same key that failed later is news."""
        return self.execution.ended_at or self.opened_at


class LetterEnded(Contract):
    """The word of a job, or of a run beside it, on a redriven or backfilled occurrence."""

    key: str
    outcome: Literal["succeeded", "cancelled", "replaced", "evicted"]
    """``succeeded`` closes the letter; ``evicted``: the job has too many; else it is open again."""
    at: Instant
    next_attempt: int = 0
    """Attempts before this one have been used."""
    attempts: list[AttemptRow] = []
    """As in :class:`DeadLetter`."""


class DeadLetterState(Contract):
    """All a dead letter is. Mutable: its workflow is its only writer."""

    model_config = ConfigDict(frozen=False)

    letter: DeadLetter
    status: LetterStatus = "open"
    expires_at: Instant
    redrives: int = 0
    """Redrives that were accepted; with the key it names the next one, so that it is begun once."""
    change: int = 1
    """Grows with each change; a row of the index with a smaller one is older."""
    stored: int = 0
    """The last change that the index has."""
    operations: list[str] = []


class RedriveLetter(Contract):
    force: bool = False
    actor: Actor


class DiscardLetter(Contract):
    actor: Actor


class LetterRedriven(Contract):
    """``repeated``: a redrive was under way already, and nothing was begun."""

    execution: ExecutionRow
    revision: int
    repeated: bool = False


class RedriveOrder(Contract):
    """A letter's wish to be run again; ``number`` counts the redrives of the letter."""

    letter: DeadLetter
    number: int
    force: bool = False
    actor: Actor

    @property
    def name(self) -> str:
        """The same for each repeat of this redrive: it is begun once."""
        letter = self.letter
        return f"redrive-{letter.occurrence.key}-{rfc3339(letter.failed_at)}-{self.number}"


class RedriveSent(Contract):
    """What came of it: the execution, or the job's refusal (``kind``: a type of ``failures``)."""

    execution: ExecutionRow | None = None
    kind: str | None = None
    message: str = ""


class LetterRow(Contract):
    """A dead letter in the index; ignored unless it was opened later, or ``change`` is newer."""

    tenant: str
    key: str
    ref: str
    job: str
    scheduled_time: Instant
    trigger: Trigger
    opened_at: Instant
    failed_at: Instant
    expires_at: Instant
    reason: str | None = None
    attempts: int = 0
    """Number of the last attempt made."""
    status_code: int | None = None
    error: str | None = None
    """Of the last attempt."""
    revision: int = 0
    status: LetterStatus
    redrives: int = 0
    change: int
    changed_at: Instant
