"""What an attempt is given, what it leaves with the server while it lives, and what it comes back with."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from workflows.contracts.base import Contract, Instant
from workflows.contracts.definition import JobDefinition
from workflows.contracts.incident import IncidentWord
from workflows.contracts.names import parse_key
from workflows.contracts.planning import TenantHints
from workflows.contracts.records import Record, Stats, Trigger

NATIVE_RETRY = timedelta(seconds=1)
"""Between a lost lease and the next holder."""
START_COUNTS_FOR = timedelta(seconds=2)
"""The start of an activity is as good as a fence for this long: its holder may fire without a word before."""


class OwnBody(Contract):
    """A body given with a manual run; it replaces the target's (null: no body)."""

    value: Any = None


class Occurrence(Contract):
    """One occurrence of a job; ``key`` is the same on every attempt, reap and return."""

    key: str
    trigger: Trigger = "schedule"
    scheduled_time: Instant
    fires_at: Instant
    body: OwnBody | None = None


class Overrun(Contract):
    """A run that is active at ``at`` has been in the way of so many occurrences that it is told.

    Small, for it travels with every attempt.
    """

    at: Instant
    started_by: Instant | None = None
    """A run that started later lets them wait instead (None: it was active from its instant on, whenever
    it started)."""
    skips: int
    """Occurrences in a row that are skipped by then."""

    def concerns(self, started_at: datetime | None) -> bool:
        """Whether a run that started then is in the way."""
        return started_at is not None and (self.started_by is None or started_at <= self.started_by)

    def word(self, job: str, key: str) -> IncidentWord:
        """What is told of the run with this key."""
        tenant, ref, _ = parse_key(key)
        return IncidentWord(
            tenant=tenant,
            kind="consecutive_skips",
            subject=ref,
            job=job,
            open=True,
            detail=f"{key} runs still: {self.skips} occurrences in a row are skipped",
            key=key,
            at=self.at,
        )


class AttemptInput(Contract):
    """Everything a worker needs to run one attempt; no worker asks anybody for more."""

    leaves_defaults_out = True

    tenant: str
    ref: str
    job: str
    occurrence: Occurrence
    attempt: int
    fires_at: Instant
    """When this attempt is due: the occurrence's instant, later for a retry."""
    not_after: Instant | None = None
    """Set for a first attempt only: a later first chance to fire is ``late``."""
    definition: JobDefinition
    revision: int
    first_started_at: Instant | None = None
    """First firing of the whole execution; ``max_duration`` counts from it."""
    first_lateness_ms: int | None = None
    deliveries: int = 0
    """How often this execution id may have been sent already."""
    reaps: int = 0
    """Reaps of this execution so far, over all its attempts and returns."""
    first_attempt: int = 1
    """The attempt that a redrive began with; retries count from it."""
    run_number: int = 0
    stats: Stats = Stats()
    """The job's counts before this execution."""
    next_fires_at: Instant | None = None
    """The occurrence planned after this one."""
    hints: TenantHints = TenantHints()
    records: list[Record] = []
    """Records that could not be stored earlier and ride along."""
    overrun: Overrun | None = None
    """What to report if the run is active still at that instant."""


class HeartbeatDetails(Contract):
    """What the next holder of this activity learns of the lost one."""

    leaves_defaults_out = True

    native_attempt: int
    """``activity.info().attempt`` of the holder that wrote this."""
    phase: Literal["held", "fired"]
    """``fired`` from the fence on: a request may have been written since."""
    deliveries: int
    reaps: int
    started_at: Instant | None = None
    """First firing of the whole execution."""
    lateness_ms: int | None = None
    worker: str = ""
    at: Instant
    unfenced: bool = False
    """This holder may fire without a word before: its start counts as its fence."""
    ends_at: Instant | None = None
    """When the time of this attempt is used up, which its target has taken over."""


class AttemptReport(Contract):
    """What an attempt comes back with: the result, or the details of its failure.

    ``late``: the first chance to fire lay after ``not_after``. ``returned``: uses no attempt, the
    same one is scheduled again at ``resume_at`` (None: now).
    """

    leaves_defaults_out = True

    outcome: Literal["succeeded", "failed", "timed_out", "late", "cancelled", "returned"]
    fired: bool = False
    """Whether a request of this attempt may have reached the target, by this or an earlier holder."""
    deliveries: int = 0
    reaps: int = 0
    started_at: Instant | None = None
    """First firing of the whole execution."""
    fired_at: Instant | None = None
    """Firing of this attempt, of the delivery that ended it."""
    lateness_ms: int | None = None
    ended_at: Instant
    status_code: int | None = None
    error: str | None = None
    answer: str | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    reason: str | None = None
    """Why it was returned, or ``max_duration`` / ``leases_lost`` for an end without retry."""
    resume_at: Instant | None = None
    worker: str = ""
    stored: bool = False
    """This attempt's own record is in the database."""
    carried_stored: bool = False
    """Every record that rode along is in the database."""
    tzdata: str = ""
    hints: TenantHints | None = None
