"""What is known of a job when its account is balanced: what came, what is said of it, what was asked for.

Instants are seconds since the epoch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.changes import Changes

ALIVE = frozenset({"scheduled", "held", "queued", "running", "retrying"})
NOT_RUN = frozenset({"skipped", "missed"})
AGAIN = frozenset({"backfill", "redrive"})
"""Triggers of runs that go on under the key of an occurrence that may have been accounted for before."""
LEASE_LOST = "the lease was lost"


@dataclass
class Visit:
    """One request as the receiver saw it."""

    job: str
    key: str
    attempt: int
    delivery: int
    start: float
    end: float | None = None
    """When it was answered or broken off; None: it hangs still."""
    status: int | None = None
    """What it was answered; None: the client went away, or it was reset."""
    execution_id: str = ""
    version: int = 0
    """Of the target's definition."""
    beat: float | None = None
    """When its last heartbeat was sent that was answered with 204."""
    report: str | None = None
    """``complete`` or ``fail`` if that was taken, ``refused`` if it was not; None: nobody has answered."""

    def __post_init__(self) -> None:
        self.execution_id = self.execution_id or f"{self.key}:{self.attempt}"

    @property
    def due(self) -> float:
        """The instant in the key of an occurrence, of a rerun's and a backfill's too; infinitely early for
        any other run."""
        try:
            return epoch(own_key(self.key).partition(":")[2])
        except ValueError:
            return -math.inf

    @property
    def over(self) -> float:
        """When it can be in nobody's way any more."""
        return math.inf if self.end is None else self.end

    def __str__(self) -> str:
        end = "open" if self.end is None else f"{self.end:.3f}"
        how = self.status or "broken"
        return f"{self.execution_id} delivery {self.delivery} [{self.start:.3f}, {end}] {how}"


@dataclass(frozen=True)
class Row:
    """One answer of the executions API."""

    key: str
    first: float
    """Its scheduled time."""
    last: float
    """Of a stretch: the scheduled time of its last occurrence."""
    outcome: str
    trigger: str = "schedule"
    reason: str | None = None
    count: int = 1
    attempts: tuple[tuple[int, int, str], ...] = ()
    """Attempt, delivery, outcome."""
    lost: frozenset[int] = frozenset()
    """Attempts whose last lease was lost."""
    revisions: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By attempt and delivery: the job's revision that was sent."""

    @property
    def occurrence(self) -> bool:
        """Whether it is that of one occurrence under its own key, whatever ran it."""
        return self.key.partition(":")[2][:1].isdigit() and self.key == own_key(self.key)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Row:
        first = epoch(answer["scheduled_time"])
        last = answer["last_scheduled_time"]
        return cls(
            key=answer["key"],
            first=first,
            last=epoch(last) if last else first,
            outcome=answer["outcome"],
            trigger=answer["trigger"],
            reason=answer["reason"],
            count=answer["count"],
            attempts=tuple((one["attempt"], one["delivery"], one["outcome"]) for one in answer["attempts"]),
            lost=frozenset(
                one["attempt"] for one in answer["attempts"] if LEASE_LOST in (one.get("error") or "")
            ),
            revisions={
                (one["attempt"], one["delivery"]): one["revision"]
                for one in answer["attempts"]
                if one.get("revision")
            },
        )


@dataclass(frozen=True)
class Account:
    """A job: what was planned, what came, what is said of it."""

    job: str
    planned: Sequence[float]
    """Every instant that was due while the job was active, in order."""
    visits: Sequence[Visit]
    rows: Sequence[Row]
    asked: Sequence[str] = ()
    """Keys of runs that were asked for and accepted."""
    backfills: Sequence[Backfill] = ()
    redriven: Mapping[str, int] = field(default_factory=dict)
    """By key of a dead letter whose redrive was accepted: the last attempt that it had made before."""
    letters: Mapping[str, str] | None = None
    """The status of each dead letter by its key; None: nobody has asked."""
    perhaps: Sequence[float] = ()
    """Instants that may have been due, but need not."""
    changes: Changes | None = None


@dataclass(frozen=True)
class Backfill:
    """One that was accepted, and what was said of it since."""

    id: str
    only: str
    instants: Sequence[float]
    """The occurrences in its range."""
    told: Sequence[Mapping[str, Any]] = ()
    """Its progress at each look, the answer to the request first."""
    max_concurrent: int = 1
    cancelled: Mapping[str, Any] | None = None
    """What the answer to its cancellation said of it."""
    cancelled_at: float = math.inf
    """When that was answered."""


@dataclass(frozen=True)
class Finding:
    kind: str
    """One of ``lost``, ``unfinished``, ``unrecorded``, ``contradicted``, ``unrecognisable``, ``overlap``,
    ``early``, ``stuck``; of what is run again ``not delivered``, ``not backfilled``, ``miscounted``,
    ``not redriven``, ``letter``; ``crowded``; those of :mod:`tests.faults.changes` and
    :mod:`tests.faults.reports`; of incidents those of :mod:`tests.faults.alerts`."""
    job: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.job}: {self.what}"


@dataclass
class Balance:
    findings: list[Finding] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    """Overlaps with a delivery whose lease was lost."""
    planned: int = 0
    deliveries: int = 0
    again: int = 0
    """Repeats with the same execution id and a higher delivery."""
    retries: int = 0
    """Repeats with a later attempt."""
    dead_lettered: int = 0
    skipped: int = 0
    missed: int = 0
    backfilled: int = 0
    """Occurrences begun by backfills."""
    redriven: int = 0
    reruns: int = 0

    def add(self, other: Balance) -> None:
        self.findings += other.findings
        self.named += other.named
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def of_kind(self, *kinds: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in kinds]


COUNTS = tuple(name for name in Balance.__dataclass_fields__ if name not in ("findings", "named"))


def own_key(key: str) -> str:
    """The occurrence's key, of a rerun's or a backfill's too."""
    return re.sub(r"(\+[br][1-9][0-9]*)+$", "", key)


def epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def clock(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat()
