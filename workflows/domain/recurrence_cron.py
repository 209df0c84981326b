"""The instants of cron expressions in a zone, clock changes included.

The rule is Debian cron's, made a choice per job (docs/decisions/0004). A year is cut at the
zone's changes into pieces of constant offset; within a piece the wall clock and the instants run
in step, so only the edges of the pieces need the rule:

- after a fold, what already happened once is left out for fixed-time expressions (``first``), or
  before it (``last``); ``both`` and wildcard expressions leave out nothing;
- at the end of a gap there is one extra run for what fell into it, if the rule gives one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from typing import Literal, NamedTuple

from workflows.domain.cron import Cron
from workflows.domain.cron_calendar import DAY, Calendar
from workflows.domain.recurrence_instants import Count
from workflows.domain.zones import FIRST_YEAR, LAST_YEAR, Change, Zone, year_of, year_start

Gap = Literal["shift", "skip"]
Fold = Literal["first", "last", "both"]

LONGEST_GAP = 3 * 3600
"""A longer gap is not made up (as in Debian's cron): that is a correction, not a season."""
_SLACK = 2 * 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_YEARS_KEPT = 64
_YEARS_COUNTED = 200


class _Piece(NamedTuple):
    """Instants ``[start, end)`` with one offset; ``extra``: a run at ``start`` for a gap before it."""

    start: int
    end: int
    offset: int
    calendar: Calendar
    extra: bool


class CronInstants:
    """The instants of a union of expressions; each follows its own class at clock changes."""

    def __init__(
        self,
        crons: Sequence[Cron],
        zone: Zone,
        *,
        gap: Gap = "shift",
        fold: Fold = "first",
        exclude: Sequence[Cron] = (),
        dates: Collection[date] = (),
    ) -> None:
        self.zone = zone
        self.gap = gap
        self.fold = fold
        self.crons = tuple(crons)
        self._exclude = exclude
        self._dates = dates
        self.fixed = tuple(cron for cron in crons if not cron.wildcard)
        self.wild = tuple(cron for cron in crons if cron.wildcard)
        self.all = self._calendar(self.crons)
        self.all_fixed = self.all if not self.wild else self._calendar(self.fixed)
        self.all_wild = self.all if not self.fixed else self._calendar(self.wild)
        self._years: dict[int, tuple[_Piece, ...]] = {}

    def at_or_after(self, instant: int) -> int | None:
        """The first instant that is not earlier, or None when there is none within 400 years."""
        year = year_of(instant)
        while year <= LAST_YEAR:
            for piece in self._pieces(year):
                start, end, offset, calendar, extra = piece
                if end <= instant:
                    continue
                low = start if start > instant else instant
                if extra and low == start:
                    return start
                minute = calendar.at_or_after(-((low + offset) // -60), (end + offset) // 60 + 1)
                if minute is not None and (found := minute * 60 - offset) < end:
                    return found
            instant = max(instant, year_start(year + 1))
            ahead = self.all.at_or_after((instant - _SLACK) // 60)
            if ahead is None:
                return None
            year = max(year + 1, year_of(ahead * 60 - _SLACK))
        return None

    def at_or_before(self, instant: int) -> int | None:
        """The last instant that is not later, or None when there is none within 400 years."""
        year = year_of(instant)
        while year >= FIRST_YEAR:
            for start, end, offset, calendar, extra in reversed(self._pieces(year)):
                if start > instant:
                    continue
                high = end - 1 if end - 1 < instant else instant
                minute = calendar.at_or_before((high + offset) // 60, (start + offset) // 60 - 1)
                if minute is not None and (found := minute * 60 - offset) >= start:
                    return found
                if extra:
                    return start
            behind = self.all.at_or_before((year_start(year) + _SLACK) // 60)
            if behind is None:
                return None
            year = min(year - 1, year_of(behind * 60 + _SLACK))
        return None

    def count(self, start: int, end: int) -> Count:
        """How many instants lie in ``[start, end)``: arithmetic, not a walk; at most 200 years of it."""
        total, years = 0, _YEARS_COUNTED
        year = year_of(start)
        while year <= LAST_YEAR and year_start(year) < end:
            if not years:
                return Count(total, complete=False)
            years -= 1
            for piece in self._pieces(year):
                low, high = max(start, piece.start), min(end, piece.end)
                if low >= high:
                    continue
                first, beyond = -((low + piece.offset) // -60), -((high + piece.offset) // -60)
                total += piece.calendar.count(first, beyond)
                if piece.extra and low == piece.start and not self._regular(piece):
                    total += 1
            ahead = self.all.at_or_after((year_start(year + 1) - _SLACK) // 60, (end + _SLACK) // 60)
            if ahead is None:
                break
            year = max(year + 1, year_of(ahead * 60 - _SLACK))
        return Count(total)

    def made_up(self, change: Change) -> bool:
        """Whether the end of a gap gets a run for what fell into it."""
        return self.gap == "shift" and self.owed(change) and not self.excluded(change)

    def owed(self, change: Change) -> bool:
        """Whether a gap swallowed what ``shift`` makes up: a fixed-time run, or all runs of a date."""
        if not 0 < change.gap <= LONGEST_GAP:
            return False
        low, high = gap_minutes(change)
        if not self.all.count(low, high):
            return False
        if self.fixed and self.all_fixed.count(low, high):
            return True
        return any(self._lost_date(cron, low, high) for cron in self.wild)

    def excluded(self, change: Change) -> bool:
        """Whether the first minute after a gap is excluded itself."""
        day, minute = divmod((change.instant + change.after) // 60, DAY)
        if date.fromordinal(day + _EPOCH) in self._dates:
            return True
        return bool(self._exclude) and bool(Calendar(self._exclude).day(day) >> minute & 1)

    def _lost_date(self, cron: Cron, low: int, high: int) -> bool:
        """Whether all runs a wildcard expression has on some local date fell into the gap."""
        calendar = self._calendar((cron,))
        for day in range(low // DAY, (high - 1) // DAY + 1):
            whole = calendar.count(day * DAY, (day + 1) * DAY)
            if whole and whole == calendar.count(max(low, day * DAY), min(high, (day + 1) * DAY)):
                return True
        return False

    def _regular(self, piece: _Piece) -> bool:
        minute, second = divmod(piece.start + piece.offset, 60)
        return second == 0 and piece.calendar.names(minute)

    def _calendar(self, crons: Sequence[Cron]) -> Calendar:
        return Calendar(crons, self._exclude, self._dates)

    def _pieces(self, year: int) -> tuple[_Piece, ...]:
        pieces = self._years.get(year)
        if pieces is None:
            if len(self._years) >= _YEARS_KEPT:
                self._years.clear()
            pieces = self._years[year] = self._cut(year)
        return pieces

    def _cut(self, year: int) -> tuple[_Piece, ...]:
        low, high = year_start(year), year_start(year + 1)
        changes = self.zone.changes(year)
        if not changes:
            return (_Piece(low, high, self.zone.offset(low), self.all, False),)
        pieces = []
        for before, after in zip((None, *changes), (*changes, None), strict=True):
            start = before.instant if before else min(low, changes[0].instant)
            end = after.instant if after else max(high, changes[-1].instant)
            offset = before.after if before else changes[0].before
            extra = before is not None and self.made_up(before)
            for left, right, calendar in self._edges(start, end, before, after):
                piece = _Piece(max(left, low), min(right, high), offset, calendar, extra and left == start)
                if piece.start < piece.end:
                    pieces.append(piece._replace(extra=piece.extra and left >= low))
        return tuple(pieces)

    def _edges(
        self, start: int, end: int, before: Change | None, after: Change | None
    ) -> list[tuple[int, int, Calendar]]:
        """Cuts off what fixed-time expressions leave out at a fold."""
        left, right = start, end
        if self.fixed and self.fold == "first" and before and before.gap < 0:
            left = min(end, start - before.gap)
        if self.fixed and self.fold == "last" and after and after.gap < 0:
            right = max(start, end + after.gap)
        if right < left:
            left = right = end
        edges = [(start, left, self.all_wild), (left, right, self.all), (right, end, self.all_wild)]
        return [edge for edge in edges if edge[0] < edge[1]]


def gap_minutes(change: Change) -> tuple[int, int]:
    """The wall-clock minutes ``[low, high)`` that a gap leaves out."""
    return -((change.instant + change.before) // -60), -((change.instant + change.after) // -60)
