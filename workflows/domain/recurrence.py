"""A schedule compiled: its occurrences, forward, backward and counted.

Pure: time is an argument, zones come from the tzdata wheel, hashes are stable. Instants are aware
datetimes in whole seconds; an occurrence is named by its nominal instant (``scheduled_time``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from hashlib import blake2b
from typing import Literal

from workflows.contracts.schedule import ExceptWindow, Schedule
from workflows.domain.cron import Cron, hash_seed, parse, parse_all
from workflows.domain.errors import RuleError
from workflows.domain.interval import IntervalInstants, OnceInstants
from workflows.domain.recurrence_cron import CronInstants
from workflows.domain.recurrence_except import AllowedInstants, Windows
from workflows.domain.recurrence_instants import Count, Instants
from workflows.domain.recurrence_notes import note
from workflows.domain.zones import (
    EPOCH,
    FIRST_YEAR,
    LAST_YEAR,
    Zone,
    from_seconds,
    to_seconds,
    year_start,
    zone,
)

Kind = Literal["fixed-time", "wildcard", "interval", "once"]

FIRST = year_start(FIRST_YEAR)
LAST = year_start(LAST_YEAR + 1) - 1
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


class Recurrence:
    """The occurrences of a schedule within its bounds, without what it excludes."""

    def __init__(
        self,
        instants: Instants,
        kind: Kind,
        zone: Zone,
        *,
        windows: Windows,
        starts: int = FIRST,
        ends: int = LAST,
        offset: int = 0,
    ) -> None:
        self.kind = kind
        self.zone = zone
        self.offset = offset
        """Seconds by which spread moves this job: ``[0, spread)``, stable."""
        self._instants = instants
        self._windows = windows
        self._starts = max(starts, FIRST)
        self._ends = min(ends, LAST)

    def after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly later, or None when there is none within 400 years."""
        return _datetime(self._at_or_after(_floor(instant) + 1))

    def before(self, instant: datetime) -> datetime | None:
        """The last occurrence strictly earlier, or None."""
        return _datetime(self._at_or_before(to_seconds(instant) - 1))

    def last(self, until: datetime) -> datetime | None:
        """The last occurrence that is not later than ``until``, or None."""
        return _datetime(self._at_or_before(_floor(until)))

    def first(self) -> datetime | None:
        """The first occurrence of all."""
        return _datetime(self._at_or_after(self._starts))

    def forward(self, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
        """Occurrences later than ``after``, ascending, up to and including ``until``."""
        last = self._ends if until is None else _floor(until)
        found = self._at_or_after(_floor(after) + 1)
        while found is not None and found <= last:
            yield from_seconds(found)
            found = self._at_or_after(found + 1)

    def backward(self, before: datetime, since: datetime | None = None) -> Iterator[datetime]:
        """Occurrences earlier than ``before``, descending, down to and including ``since``."""
        first = self._starts if since is None else to_seconds(since)
        found = self._at_or_before(to_seconds(before) - 1)
        while found is not None and found >= first:
            yield from_seconds(found)
            found = self._at_or_before(found - 1)

    def count(self, after: datetime, until: datetime, cap: int | None = None) -> Count:
        """How many occurrences lie later than ``after`` and not later than ``until``.

        With ``cap``, ``total`` is at most that; ``complete`` is False when there are more.
        """
        start = max(_floor(after) + 1, self._starts)
        end = min(_floor(until), self._ends) + 1
        if start >= end:
            return Count(0)
        total, complete = self._instants.count(start, end)
        for low, high in self._windows.merged:
            if low < end and high > start:
                inside = self._instants.count(max(low, start), min(high, end))
                total, complete = total - inside.total, complete and inside.complete
        if cap is not None and total > cap:
            return Count(cap, complete=False)
        return Count(max(total, 0), complete)

    def fires_at(self, scheduled_time: datetime) -> datetime:
        """The nominal instant moved by the job's spread."""
        return scheduled_time + timedelta(seconds=self.offset)

    def local(self, instant: datetime) -> datetime:
        """The same instant on the wall of the schedule's zone."""
        return instant.astimezone(self.zone.info)

    def note(self, scheduled_time: datetime) -> str | None:
        """Why a clock change concerns this occurrence, in a sentence; None when none does."""
        if isinstance(self._instants, CronInstants):
            return note(self._instants, _floor(scheduled_time))
        return None

    def _at_or_after(self, instant: int) -> int | None:
        instant = max(instant, self._starts)
        while instant <= self._ends:
            found = self._instants.at_or_after(instant)
            if found is None or found > self._ends:
                return None
            window = self._windows.covering(found)
            if window is None:
                return found
            instant = window[1]
        return None

    def _at_or_before(self, instant: int) -> int | None:
        instant = min(instant, self._ends)
        while instant >= self._starts:
            found = self._instants.at_or_before(instant)
            if found is None or found < self._starts:
                return None
            window = self._windows.covering(found)
            if window is None:
                return found
            instant = window[0] - 1
        return None


def compile_schedule(
    schedule: Schedule,
    *,
    tenant: str = "",
    job: str = "",
    default_timezone: str | None = None,
    spread: timedelta | None = None,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    except_: Sequence[ExceptWindow] = (),
) -> Recurrence:
    """Compiles a resolved schedule (see ``resolve``).

    ``starts_at`` and ``ends_at`` are both inclusive, in nominal instants. ``H`` and the spread are
    hashed on tenant and job. Raises ``RuleError`` for text or a zone that is not accepted.
    """
    seed = hash_seed(tenant, job)
    where = zone(schedule.timezone or default_timezone or "UTC")
    dates = frozenset(entry.date for entry in except_ if entry.date is not None)
    exclude = tuple(
        parse(entry.cron, seed=seed, pointer=f"/except/{n}/cron")
        for n, entry in enumerate(except_)
        if entry.cron is not None
    )
    instants, kind = _instants(schedule, where, seed, exclude, dates)
    return Recurrence(
        instants,
        kind,
        where,
        windows=Windows(
            (to_seconds(entry.from_), to_seconds(entry.to))
            for entry in except_
            if entry.from_ is not None and entry.to is not None
        ),
        starts=FIRST if starts_at is None else to_seconds(starts_at),
        ends=LAST if ends_at is None else _floor(ends_at),
        offset=spread_offset(spread, tenant, job),
    )


def spread_offset(spread: timedelta | None, tenant: str, job: str) -> int:
    """Whole seconds in ``[0, spread)``, the same for a job whatever its schedule."""
    choices = 0 if spread is None else -(-spread // _SECOND)
    if choices <= 1:
        return 0
    digest = blake2b(f"spread\0{hash_seed(tenant, job)}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % choices


def _instants(
    schedule: Schedule, where: Zone, seed: str, exclude: tuple[Cron, ...], dates: frozenset[date]
) -> tuple[Instants, Kind]:
    if schedule.cron is not None:
        crons = parse_all(schedule.cron, seed=seed)
        kind: Kind = "wildcard" if any(cron.wildcard for cron in crons) else "fixed-time"
        instants = CronInstants(
            crons, where, gap=schedule.gap, fold=schedule.fold, exclude=exclude, dates=dates
        )
        return instants, kind
    simple: Instants
    if schedule.every is not None and schedule.anchor is not None:
        simple, kind = IntervalInstants(_aware(schedule.anchor), schedule.every // _MICROSECOND), "interval"
    elif schedule.at is not None:
        simple, kind = OnceInstants(_aware(schedule.at)), "once"
    else:
        raise RuleError("the schedule is not resolved", code="schedule_unresolved", pointer="/schedule")
    return (AllowedInstants(simple, where, exclude, dates) if exclude or dates else simple), kind


def _aware(instant: datetime) -> int:
    if instant.tzinfo is None:
        raise RuleError("the schedule is not resolved", code="schedule_unresolved", pointer="/schedule")
    return to_seconds(instant)


def _floor(instant: datetime) -> int:
    since = instant - EPOCH
    return since.days * 86_400 + since.seconds


def _datetime(instant: int | None) -> datetime | None:
    return None if instant is None else from_seconds(instant)
