"""The receiver's log against what the executions API says of a job: what was promised, and what came.

Pure: instants are seconds since the epoch, and nothing is asked. A ledger that balances means: nothing
lost, every repeat recognisable, nothing early, and nothing side by side that must not be, except with a
delivery whose lease was lost, which is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

ALIVE = frozenset({"scheduled", "held", "queued", "running", "retrying"})
NOT_RUN = frozenset({"skipped", "missed"})
NOTICED_WITHIN = 0.3
"""Seconds within which a receiver notices that its client has gone."""


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

    def __post_init__(self) -> None:
        self.execution_id = self.execution_id or f"{self.key}:{self.attempt}"

    @property
    def due(self) -> float:
        """The instant in the key of a regular occurrence; infinitely early for any other run."""
        try:
            return epoch(self.key.partition(":")[2])
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


@dataclass(frozen=True)
class Finding:
    kind: str
    """One of ``lost``, ``unfinished``, ``unrecorded``, ``contradicted``, ``unrecognisable``, ``overlap``,
    ``early``, ``stuck``."""
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

    def add(self, other: Balance) -> None:
        self.findings += other.findings
        self.named += other.named
        for name in ("planned", "deliveries", "again", "retries", "dead_lettered", "skipped", "missed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def of_kind(self, *kinds: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in kinds]


def epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def balance(
    accounts: Iterable[Account],
    *,
    groups: Iterable[Iterable[str]] = (),
    side_by_side: Iterable[str] = (),
    frozen: Sequence[tuple[float, float]] = (),
) -> Balance:
    """Every account by itself. No two runs of a job may overlap, nor of two jobs of one of ``groups``;
    the runs of a job of ``side_by_side`` may.

    ``frozen``: from when until when a worker stood still. What is stopped then ends with its lease, and
    the connection only when the worker goes on.
    """
    found, by_job = Balance(), {account.job: account for account in accounts}
    for account in by_job.values():
        found.add(_single(account))
    alone = [{job} for job in by_job if job not in set(side_by_side)]
    for jobs in (*alone, *(set(group) for group in groups)):
        found.add(_overlaps([by_job[job] for job in sorted(jobs)], frozen))
    return found


def _single(account: Account) -> Balance:
    job, rows = account.job, {row.key: row for row in account.rows}
    found = Balance(planned=len(account.planned), deliveries=len(account.visits))
    found.findings += _unaccounted(account)
    found.findings += [
        Finding("lost", job, f"{key} was accepted and has no row") for key in account.asked if key not in rows
    ]
    visits: dict[str, list[Visit]] = {}
    for visit in sorted(account.visits, key=lambda one: one.start):
        visits.setdefault(visit.key, []).append(visit)
    for key, series in visits.items():
        found.findings += _early(job, series)
        _repeats(job, series, found)
        row = rows.get(key)
        if row is None:
            found.findings.append(Finding("unrecorded", job, f"{series[0]} has no row"))
        elif row.outcome in NOT_RUN:
            found.findings.append(Finding("contradicted", job, f"{series[0]} but the row says {row.outcome}"))
    for row in rows.values():
        if row.outcome in ALIVE:
            found.findings.append(Finding("unfinished", job, f"{row.key} is {row.outcome} still"))
        elif row.outcome == "succeeded" and row.count == 1:
            found.findings += _undelivered(job, row, visits.get(row.key, []))
        elif row.outcome == "dead_lettered":
            found.dead_lettered += row.count
        elif row.outcome == "skipped":
            found.skipped += row.count
        elif row.outcome == "missed":
            found.missed += row.count
    return found


def _unaccounted(account: Account) -> list[Finding]:
    """Every planned instant has a row of its own or is counted in the row of a stretch."""
    job, findings = account.job, []
    scheduled = [row for row in account.rows if row.trigger in ("schedule", "catch_up")]
    singles = {row.first for row in scheduled if row.count == 1}
    open_ones = [instant for instant in account.planned if instant not in singles]
    for row in scheduled:
        if row.count == 1:
            continue
        inside = [instant for instant in open_ones if row.first <= instant <= row.last]
        if len(inside) != row.count:
            text = f"{row.outcome} row {row.key} counts {row.count}, {len(inside)} instants lie open in it"
            beyond = not account.planned or row.last > account.planned[-1]
            if not (beyond and len(inside) < row.count):  # it may reach past the end of the plan
                findings.append(Finding("lost", job, text))
        open_ones = [instant for instant in open_ones if not row.first <= instant <= row.last]
    return [*findings, *(Finding("lost", job, f"{_clock(instant)} has no row") for instant in open_ones)]


def _undelivered(job: str, row: Row, series: Sequence[Visit]) -> list[Finding]:
    """A success is that of a delivery which the receiver has answered so."""
    answered = {(one.attempt, one.delivery) for one in series if one.status and 200 <= one.status < 300}
    ends = [(attempt, delivery) for attempt, delivery, outcome in row.attempts if outcome == "succeeded"]
    if len(ends) != 1:
        return [
            Finding("lost", job, f"{row.key} succeeded with {len(ends)} attempts that did: {row.attempts}")
        ]
    if ends[0] not in answered:
        return [
            Finding("lost", job, f"{row.key} succeeded by attempt, delivery {ends[0]}; answered: {answered}")
        ]
    return []


def _early(job: str, series: Sequence[Visit]) -> list[Finding]:
    early = [one for one in series if one.start < one.due]
    return [Finding("early", job, f"{one} by {one.due - one.start:.3f} s") for one in early]


def _repeats(job: str, series: Sequence[Visit], found: Balance) -> None:
    for before, after in pairwise(series):
        sent = [(one.attempt, one.delivery) for one in (before, after)]
        if sent[1] <= sent[0] or after.execution_id != f"{after.key}:{after.attempt}":
            found.findings.append(Finding("unrecognisable", job, f"{after} behind {before}"))
        elif after.attempt == before.attempt:
            found.again += 1
        else:
            found.retries += 1


def _overlaps(accounts: Sequence[Account], frozen: Sequence[tuple[float, float]]) -> Balance:
    """Two runs at once. One that has been superseded, since its lease was lost, may go on unheard."""
    found = Balance()
    rows = {row.key: row for account in accounts for row in account.rows}
    visits = sorted((one for account in accounts for one in account.visits), key=lambda one: one.start)
    newest: dict[str, int] = {}
    running: list[Visit] = []
    for visit in visits:
        newest[visit.execution_id] = max(newest.get(visit.execution_id, 0), visit.delivery)
        slack = {id(one): 0.0 if one.status else NOTICED_WITHIN for one in running}
        running = [one for one in running if one.over - slack[id(one)] > visit.start]
        for one in running:
            text = f"{one} beside {visit}"
            row = rows.get(one.key)
            if newest[one.execution_id] > one.delivery or _lease_lost(one, row):
                found.named.append(f"lease of delivery {one.delivery} lost: {text}")
            elif _stopped(row) and any(begin < visit.start < end for begin, end in frozen):
                found.named.append(f"delivery {one.delivery} stopped while its worker stood still: {text}")
            else:
                found.findings.append(Finding("overlap", visit.job, text))
        running.append(visit)
    return found


def _lease_lost(visit: Visit, row: Row | None) -> bool:
    """The history says that this delivery was not the last of its execution id, or that all were lost."""
    if row is None:
        return False
    later = any(a == visit.attempt and d > visit.delivery for a, d, _ in row.attempts)
    return later or row.reason == "leases_lost"


def _stopped(row: Row | None) -> bool:
    return row is not None and row.outcome in ("replaced", "cancelled")


def _clock(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat()
