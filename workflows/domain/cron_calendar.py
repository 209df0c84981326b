"""The wall-clock minutes that cron expressions name, without any zone.

A minute is counted from 1970-01-01 00:00 on the wall. Everything is arithmetic on a day's 1,440
bits and a month's 31, so a search costs microseconds and a count does not walk.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date

from workflows.domain.cron import Cron
from workflows.domain.cron_days import MONTH_LENGTHS

DAY = 1440
WHOLE_DAY = (1 << DAY) - 1
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_YEAR = 9998
_CYCLE = 400 * 12 + 2
"""After so many months the calendar repeats itself: nothing found means nothing ever."""

_Part = tuple[int, int, int]
"""Days of a month (mask), the minutes named on each of them, and how many those are."""
_Month = tuple[int, tuple[_Part, ...]]
_NOTHING: _Month = (0, ())


class Calendar:
    """The minutes named by any of ``include`` and by none of ``exclude``, except on ``dates``."""

    def __init__(
        self, include: Sequence[Cron], exclude: Sequence[Cron] = (), dates: Collection[date] = ()
    ) -> None:
        self._include = include
        self._exclude = exclude
        self._dates: dict[tuple[int, int], int] = {}
        for day in dates:
            key = (day.year, day.month)
            self._dates[key] = self._dates.get(key, 0) | 1 << day.day
        self._kinds: dict[int, _Month] = {}
        self._months = 0
        for cron in include:
            self._months |= cron.months

    def at_or_after(self, minute: int, before: int | None = None) -> int | None:
        """The first named minute that is not earlier; None when there is none (below ``before``)."""
        day, start = divmod(minute, DAY)
        today = date.fromordinal(day + _EPOCH)
        year, month, number = today.year, today.month, today.day
        mask, parts = self._month(year, month)
        if mask >> number & 1:
            bits = _bits(parts, number) >> start
            if bits:
                return minute + (bits & -bits).bit_length() - 1
        mask = mask >> (number + 1) << (number + 1)
        for _ in range(_CYCLE):
            if mask:
                number = (mask & -mask).bit_length() - 1
                bits = _bits(parts, number)
                day = date(year, month, number).toordinal() - _EPOCH
                return day * DAY + (bits & -bits).bit_length() - 1
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if year > _LAST_YEAR:
                return None
            if before is not None and (date(year, month, 1).toordinal() - _EPOCH) * DAY >= before:
                return None
            mask, parts = self._month(year, month)
        return None

    def at_or_before(self, minute: int, after: int | None = None) -> int | None:
        """The last named minute that is not later; None when there is none (from ``after`` on)."""
        day, end = divmod(minute, DAY)
        today = date.fromordinal(day + _EPOCH)
        year, month, number = today.year, today.month, today.day
        mask, parts = self._month(year, month)
        if mask >> number & 1:
            bits = _bits(parts, number) & ((2 << end) - 1)
            if bits:
                return day * DAY + bits.bit_length() - 1
        mask &= (1 << number) - 1
        for _ in range(_CYCLE):
            if mask:
                number = mask.bit_length() - 1
                day = date(year, month, number).toordinal() - _EPOCH
                return day * DAY + _bits(parts, number).bit_length() - 1
            if after is not None and (date(year, month, 1).toordinal() - _EPOCH) * DAY <= after:
                return None
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            if year < 1:
                return None
            mask, parts = self._month(year, month)
        return None

    def count(self, start: int, end: int) -> int:
        """How many minutes are named in ``[start, end)``."""
        if start >= end:
            return 0
        first, low = divmod(start, DAY)
        last, high = divmod(end, DAY)
        if first == last:
            return (self.day(first) >> low & ((1 << (high - low)) - 1)).bit_count()
        total = (self.day(first) >> low).bit_count()
        if high:
            total += (self.day(last) & ((1 << high) - 1)).bit_count()
        return total + self._count_days(first + 1, last)

    def day(self, day: int) -> int:
        """The minutes named on a day, counted from 1970-01-01: bit ``60 * hour + minute``."""
        today = date.fromordinal(day + _EPOCH)
        mask, parts = self._month(today.year, today.month)
        return _bits(parts, today.day) if mask >> today.day & 1 else 0

    def names(self, minute: int) -> bool:
        day, bit = divmod(minute, DAY)
        return bool(self.day(day) >> bit & 1)

    def _count_days(self, first: int, end: int) -> int:
        total = 0
        while first < end:
            today = date.fromordinal(first + _EPOCH)
            year, month, number = today.year, today.month, today.day
            beyond = min(end - first + number, _length(year, month) + 1)
            within = (1 << beyond) - (1 << number)
            for mask, _, size in self._month(year, month)[1]:
                total += (mask & within).bit_count() * size
            first += beyond - number
        return total

    def _month(self, year: int, month: int) -> _Month:
        if not self._months >> month & 1:
            return _NOTHING
        length = _length(year, month)
        weekday = date(year, month, 1).toordinal() % 7
        key = (month * 32 + length) * 8 + weekday
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._kind(month, length, weekday)
        if self._dates and (without := self._dates.get((year, month))):
            parts = tuple((mask & ~without, bits, size) for mask, bits, size in kind[1] if mask & ~without)
            return kind[0] & ~without, parts
        return kind

    def _kind(self, month: int, length: int, weekday: int) -> _Month:
        """Splits the days of a month of this kind into parts with the same minutes."""
        parts: dict[int, int] = {(2 << length) - 2: 0}
        for cron in self._include:
            if cron.months >> month & 1:
                named = cron.days.mask(length, weekday)
                parts = _split(parts, named, add=cron.day_bits)
        for cron in self._exclude:
            if cron.months >> month & 1:
                named = cron.days.mask(length, weekday)
                parts = _split(parts, named, remove=cron.day_bits)
        left = tuple((mask, bits, bits.bit_count()) for mask, bits in parts.items() if bits)
        union = 0
        for mask, _, _ in left:
            union |= mask
        return union, left


def _split(parts: dict[int, int], named: int, *, add: int = 0, remove: int = 0) -> dict[int, int]:
    split: dict[int, int] = {}
    for mask, bits in parts.items():
        if mask & named:
            split[mask & named] = (bits | add) & ~remove
        if mask & ~named:
            split[mask & ~named] = bits
    return split


def _bits(parts: tuple[_Part, ...], number: int) -> int:
    for mask, bits, _ in parts:
        if mask >> number & 1:
            return bits
    return 0


def _length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return MONTH_LENGTHS[month]
