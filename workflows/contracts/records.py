"""What is told to the database: rows of executions, attempts and jobs.

A record may arrive late, twice, or never in order; every row carries what is needed to ignore an
older one (``seq``, ``run_number``, ``change``).
"""

from __future__ import annotations

from typing import Literal

from workflows.contracts.base import Contract, Instant
from workflows.contracts.definition import JobDefinition

Trigger = Literal["schedule", "manual", "backfill", "catch_up", "redrive", "rerun"]
AttemptOutcome = Literal["running", "succeeded", "failed", "timed_out", "cancelled"]
Outcome = Literal[
    "scheduled", "held", "queued", "running", "retrying",
    "succeeded", "failed", "timed_out", "dead_lettered", "skipped", "missed", "cancelled", "replaced",
]  # fmt: skip
ALIVE: tuple[Outcome, ...] = ("scheduled", "held", "queued", "running", "retrying")

FIRED_PHASE = 1
ENDED_PHASE = 5
FINAL_PHASE = 9
DELIVERIES_MAX = 999
"""As far as deliveries are told apart by their order."""


def sequence(attempt: int, delivery: int, phase: int) -> int:
    """Orders what is written of one execution: by attempt, then delivery, then phase.

    Phase 1: fired; 5: the attempt has ended; 9: settled by the job workflow.
    """
    return attempt * 10_000 + min(delivery, DELIVERIES_MAX) * 10 + phase


def attempt_after(seq: int) -> int:
    """The first attempt that was not sent, as far as a row with this ``seq`` knows."""
    attempt, rest = divmod(seq, 10_000)
    return max(attempt + (rest >= 10), 1)


class ExecutionRow(Contract):
    """One occurrence with all its attempts, or a stretch of occurrences that did not run."""

    key: str
    scheduled_time: Instant
    fires_at: Instant
    trigger: Trigger = "schedule"
    outcome: Outcome
    seq: int
    started_at: Instant | None = None
    """First firing of its first attempt."""
    ended_at: Instant | None = None
    lateness_ms: int | None = None
    """From due to the request written to the socket, of the first firing."""
    reason: str | None = None
    count: int = 1
    last_scheduled_time: Instant | None = None
    """Of a stretch: the nominal instant of its last occurrence."""
    revision: int = 0


class AttemptRow(Contract):
    """One attempt; ``delivery`` counts how often its execution id was sent."""

    attempt: int
    delivery: int
    execution_id: str
    outcome: AttemptOutcome
    seq: int
    started_at: Instant | None = None
    ended_at: Instant | None = None
    status_code: int | None = None
    error: str | None = None
    answer: str | None = None
    """At most 4 KiB of what the target answered."""
    worker: str = ""
    revision: int = 0


class LastRun(Contract):
    """The last run that started, as a job's answer shows it."""

    key: str
    scheduled_time: Instant
    trigger: Trigger
    outcome: Outcome
    started_at: Instant | None = None
    ended_at: Instant | None = None
    reason: str | None = None


class Stats(Contract):
    """Counts over a job's life: executions, not attempts."""

    runs: int = 0
    succeeded: int = 0
    dead_lettered: int = 0
    skipped: int = 0
    missed: int = 0
    consecutive_failures: int = 0
    last_success_at: Instant | None = None


class JobProgress(Contract):
    """What a run moves in the job's index row; ignored unless ``run_number``, or within one run the
    ``seq`` of the record's execution, is newer."""

    run_number: int
    stats: Stats
    last_run: LastRun | None = None
    next_fires_at: Instant | None = None


class Pause(Contract):
    since: Instant
    reason: str = ""
    until: Instant | None = None
    by: str = ""


class JobRow(Contract):
    """The job's index row; ignored unless ``change`` is newer."""

    job: str
    generation: int
    revision: int
    change: int
    status: Literal["active", "paused", "completed", "deleted"]
    definition: JobDefinition
    pause: Pause | None = None
    created_at: Instant
    updated_at: Instant
    next_fires_at: Instant | None = None
    run_number: int | None = None
    """The last run that ``next_fires_at`` takes into account; progress of later runs moves it on."""


class Record(Contract):
    """One entry of the records channel: any of its parts may be absent."""

    tenant: str
    ref: str
    execution: ExecutionRow | None = None
    attempt: AttemptRow | None = None
    progress: JobProgress | None = None
    job: JobRow | None = None
