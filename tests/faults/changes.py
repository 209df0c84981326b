"""Whether what was changed of a job counted: its schedule, pauses, skips, edits and its deletion.

Pure, as the ledger. Instants are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.faults.accounts import AGAIN, Account, Finding, Row, Visit, clock, own_key

CHANGED = ("unplanned", "paused", "left out", "outdated", "misrecorded", "deleted")
"""The kinds of findings here."""


@dataclass(frozen=True)
class Period:
    """A schedule for as long as it was in force.

    From ``begins`` (not included) to ``ends`` (included) its occurrences may run; those from
    ``surely_from`` to ``surely_until`` must be accounted for. In between it is up to the instant at which
    the job heard of the change.
    """

    anchor: float
    every: int
    begins: float
    surely_from: float
    surely_until: float = math.inf
    ends: float = math.inf

    def on_grid(self, instant: float) -> bool:
        return instant >= self.anchor and (instant - self.anchor) % self.every == 0

    def between(self, after: float, until: float) -> list[float]:
        """Instants behind ``after``, up to ``until``."""
        if after >= until:
            return []
        first = max(0, math.floor((after - self.anchor) / self.every) + 1)
        found, number = [], first
        while (instant := self.anchor + number * self.every) <= until:
            found.append(instant)
            number += 1
        return found


@dataclass
class Paused:
    answered: float
    in_flight: frozenset[str]
    """Keys that the answer named."""
    ends: float = math.inf
    """When the resume was asked for."""


@dataclass
class Skipped:
    instant: float
    answered: float
    taken_back: float = math.inf
    """When that was asked for."""


@dataclass(frozen=True)
class Version:
    """The target as an edit made it."""

    number: int
    revision: int
    answered: float


@dataclass(frozen=True)
class Deleted:
    asked: float
    answered: float
    in_flight: frozenset[str] | None
    """Keys that the answer named; None: it was an answer to a repeat, which knows none."""


@dataclass
class Changes:
    """Of one generation of a job, oldest first."""

    periods: list[Period]
    pauses: list[Paused] = field(default_factory=list)
    skips: list[Skipped] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    deleted: Deleted | None = None

    def move(self, period: Period) -> None:
        """From now on it runs by ``period``, which begins when the one before ends."""
        before = self.periods[-1]
        self.periods[-1] = replace(before, surely_until=period.begins, ends=period.surely_from)
        self.periods.append(period)

    def planned(self, until: float, rows: Iterable[Row]) -> list[float]:
        """What must be accounted for. A deletion drops what is due and has not begun, also what waits while
        later occurrences are skipped: nothing may be missing before the last that has run."""
        if self.deleted is not None:
            ran = [row.first for row in rows if row.occurrence and row.attempts]
            until = min(self.deleted.asked, max(ran, default=-math.inf))
        found = {
            instant
            for period in self.periods
            for instant in period.between(period.surely_from, min(period.surely_until, until))
        }
        return sorted(found)

    def perhaps(self, until: float) -> list[float]:
        """What may have rows besides, since it fell due while a change was on its way."""
        found = {
            instant
            for period in self.periods
            for begin, end in (
                (period.begins, period.surely_from), (period.surely_until, min(period.ends, until)),
            )
            for instant in period.between(begin, end)
        }  # fmt: skip
        return sorted(found)

    def may_run(self, instant: float) -> bool:
        return any(
            period.begins < instant <= period.ends and period.on_grid(instant) for period in self.periods
        )


def changed(
    account: Account, rows: Mapping[str, Row], visits: Mapping[str, Sequence[Visit]]
) -> list[Finding]:
    changes = account.changes
    if changes is None:
        return []
    asked_again = {instant for one in account.backfills for instant in one.instants}
    findings = []
    for key, series in visits.items():
        first, row = series[0], rows.get(key)
        by_schedule = key == own_key(key) and first.due > -math.inf and first.due not in asked_again
        if by_schedule:
            findings += _of_schedule(account.job, changes, first)
        if by_schedule and key not in account.redriven and (row is None or row.trigger not in AGAIN):
            findings += [found for one in series for found in _in_a_pause(account.job, changes, one)]
            findings += _behind_the_deletion(account.job, changes, first)
        findings += _versions(account.job, changes, series, row)
    return findings


def _of_schedule(job: str, changes: Changes, first: Visit) -> list[Finding]:
    findings = [
        Finding("left out", job, f"{first} though it was to be, by {clock(skip.answered)}")
        for skip in changes.skips
        if skip.instant == first.due and first.start > skip.answered and math.isinf(skip.taken_back)
    ]
    if not changes.may_run(first.due):
        findings.append(Finding("unplanned", job, f"{first} of no schedule that it had then"))
    return findings


def _in_a_pause(job: str, changes: Changes, visit: Visit) -> list[Finding]:
    """What a pause was answered not to have stopped may come; nothing else."""
    for pause in changes.pauses:
        if pause.answered < visit.start < pause.ends and visit.key not in pause.in_flight:
            what = (
                f"{visit} though paused from {pause.answered:.3f}, with {sorted(pause.in_flight)} in flight"
            )
            return [Finding("paused", job, what)]
    return []


def _behind_the_deletion(job: str, changes: Changes, first: Visit) -> list[Finding]:
    deleted = changes.deleted
    if deleted is None or deleted.in_flight is None or first.start <= deleted.answered:
        return []
    if first.key in deleted.in_flight:
        return []
    what = f"{first} though deleted by {deleted.answered:.3f}, with {sorted(deleted.in_flight)} in flight"
    return [Finding("deleted", job, what)]


def _versions(job: str, changes: Changes, series: Sequence[Visit], row: Row | None) -> list[Finding]:
    """What falls due, or is tried again, behind an edit is sent as that says; each record tells by which."""
    findings, ends = [], dict[int, float]()
    for one in series:
        ends[one.attempt] = min(ends.get(one.attempt, math.inf), one.over)
        since = max(one.due, ends.get(one.attempt - 1, -math.inf))
        newest = max((known.number for known in changes.versions if known.answered < since), default=0)
        if one.version < newest:
            findings.append(Finding("outdated", job, f"{one} sent as version {one.version}, not {newest}"))
        revision = None if row is None else row.revisions.get((one.attempt, one.delivery))
        told = [known.number for known in changes.versions if revision and known.revision <= revision]
        if revision and one.version != max(told, default=0):
            what = f"{one} sent as version {one.version}, its record says revision {revision}"
            findings.append(Finding("misrecorded", job, what))
    return findings
