"""Whether a job may be created: rules over what the database holds, without the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from infra.database.errors import (
    CreateRateExceeded,
    IdempotencyConflict,
    JobExists,
    QuotaExceeded,
    ReservationRefused,
)
from infra.database.stored_job import StoredJob
from workflows.contracts.definition import JobDefinition
from workflows.contracts.names import ref_of
from workflows.contracts.records import Stats

BURST = 10
"""Jobs that may be created at once, in seconds of the rate."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One creation asked for. ``fingerprint`` tells requests apart; ``job`` is the id it will have."""

    job: str
    definition: JobDefinition
    fingerprint: str
    key: str | None = None
    created_by: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The place of a job in the index.

    ``new``: start its workflow, then activate it. ``adopted``: an earlier request got so far; do the
    same, with the definition and the instants stored then. ``replay``: that request was carried out;
    ``job`` is how it is now (deleted, perhaps).
    """

    kind: Literal["new", "adopted", "replay"]
    job: StoredJob


@dataclass(slots=True)
class Usage:
    """Live jobs of a tenant and its token bucket."""

    jobs: int
    tokens: float
    refilled_at: datetime

    def refill(self, rate: float, now: datetime) -> None:
        """Add ``rate`` tokens a second up to :data:`BURST` seconds' worth; never backwards."""
        gained = max(0.0, (now - self.refilled_at).total_seconds()) * rate
        self.tokens = min(full(rate), self.tokens + gained)
        self.refilled_at = max(self.refilled_at, now)


def full(rate: float) -> float:
    """Tokens in a full bucket; at least one, or nothing could ever be created."""
    return max(1.0, BURST * rate)


@dataclass(slots=True)
class KnownKey:
    """An Idempotency-Key in use, with the job that it created."""

    fingerprint: str
    job: StoredJob | None


@dataclass(slots=True)
class Admission:
    """One transaction's view of a tenant; :meth:`admit` carries on with what it admitted before."""

    tenant: str
    max_jobs: int
    create_rate: float
    now: datetime
    usage: Usage
    newest: dict[str, StoredJob]
    """By job id: its newest generation, tombstones included."""
    keys: dict[str, KnownKey] = field(default_factory=dict)
    created: list[tuple[Draft, StoredJob]] = field(default_factory=list)
    learned: list[tuple[Draft, str]] = field(default_factory=list)
    """Keys to remember, with the ref they stand for."""
    reserved_by: dict[str, Draft] = field(default_factory=dict)
    """By ref: who asked for the reservations in :attr:`newest` that are unfinished."""

    def admit_all(self, drafts: Sequence[Draft]) -> list[Reservation | ReservationRefused]:
        """What becomes of each, in order; the earlier ones take the quota."""
        return [self._admit(draft) for draft in drafts]

    def _admit(self, draft: Draft) -> Reservation | ReservationRefused:
        known = None if draft.key is None else self.keys.get(draft.key)
        if known is not None and draft.key is not None:
            if known.fingerprint != draft.fingerprint:
                return IdempotencyConflict(draft.key)
            if known.job is not None and not known.job.freed:
                return Reservation("adopted" if known.job.status == "reserved" else "replay", known.job)
        newest = self.newest.get(draft.job)
        if newest is not None and newest.status != "deleted":
            return self._adopt(draft, newest)
        if self.usage.jobs >= self.max_jobs:
            return QuotaExceeded(self.max_jobs)
        if self.usage.tokens < 1:
            return CreateRateExceeded(timedelta(seconds=(1 - self.usage.tokens) / self.create_rate))
        return self._create(draft, newest)

    def _adopt(self, draft: Draft, newest: StoredJob) -> Reservation | ReservationRefused:
        """The unfinished creation by the same request is carried on; anything else is in the way."""
        first = self.reserved_by.get(newest.ref)
        if first is None or first.fingerprint != draft.fingerprint:
            return JobExists(draft.job, newest.ref)
        if draft.key is not None and first.key not in (None, draft.key):
            return JobExists(draft.job, newest.ref)
        self._learn(draft, newest)
        return Reservation("adopted", newest)

    def _create(self, draft: Draft, newest: StoredJob | None) -> Reservation:
        generation = 1 if newest is None else newest.generation + 1
        job = StoredJob(
            tenant=self.tenant,
            ref=ref_of(draft.job, generation),
            job=draft.job,
            generation=generation,
            revision=1 if newest is None else newest.revision + 1,
            change=0,
            status="reserved",
            definition=draft.definition,
            pause=None,
            created_at=self.now,
            created_by=draft.created_by,
            updated_at=self.now,
            next_fires_at=None,
            run_number=0,
            stats=Stats(),
            last_run=None,
            freed=False,
        )
        self.usage.jobs += 1
        self.usage.tokens -= 1
        self.newest[draft.job] = job
        self.reserved_by[job.ref] = draft
        self.created.append((draft, job))
        self._learn(draft, job)
        return Reservation("new", job)

    def _learn(self, draft: Draft, job: StoredJob) -> None:
        if draft.key is not None:
            self.keys[draft.key] = KnownKey(draft.fingerprint, replace(job))
            self.learned.append((draft, job.ref))
