"""The days of a month that the two day fields of a cron expression name.

A month is known by its length and the weekday of its first day (0 is Sunday), so there are only
28 kinds of month. Sets of days are bit masks: bit ``d`` is day ``d``, bit 0 is never set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MONTH_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# _WEEKDAYS[first][weekday]: the days of a 31-day month that fall on that weekday.
_WEEKDAYS = tuple(
    tuple(sum(1 << day for day in range(1, 32) if (first + day - 1) % 7 == weekday) for weekday in range(7))
    for first in range(7)
)
# _WEEKS[n]: the days that can be the n-th of their weekday in a month.
_WEEKS = (0, *(((1 << 7) - 1) << (7 * n + 1) for n in range(5)))


@dataclass(frozen=True, slots=True)
class MonthDay:
    """A day of the month that depends on the month.

    ``last``: the last day less ``n`` (``L``, ``L-n``). ``last_weekday``: the last day from Monday
    to Friday (``LW``). ``nearest_weekday``: the one nearest to day ``n`` in the same month (``nW``).
    """

    kind: Literal["last", "last_weekday", "nearest_weekday"]
    n: int = 0

    def day(self, length: int, first: int) -> int | None:
        """The day in a month of this kind, or None when it has none."""
        if self.kind == "last":
            return length - self.n if self.n < length else None
        if self.kind == "last_weekday":
            return _nearest_weekday(length, length, first)
        return _nearest_weekday(self.n, length, first) if self.n <= length else None


def _nearest_weekday(day: int, length: int, first: int) -> int:
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


@dataclass(frozen=True, slots=True)
class Days:
    """Both day fields together.

    ``intersect`` is Vixie cron's rule: true as soon as one of the fields begins with a star, and
    then a day must match both fields; else it may match either.
    """

    month_days: int
    """Mask of plain days of the month."""
    special: MonthDay | None
    weekdays: int
    """Mask of plain weekdays, bit 0 is Sunday."""
    nth: tuple[tuple[int, int], ...]
    """``fri#2`` is (5, 2)."""
    last: tuple[int, ...]
    """``5L`` is 5: the last Friday of the month."""
    intersect: bool

    def mask(self, length: int, first: int) -> int:
        """The days named in a month of ``length`` days whose first day is weekday ``first``."""
        whole = (1 << (length + 1)) - 2
        by_month_day = self.month_days
        if self.special is not None and (day := self.special.day(length, first)) is not None:
            by_month_day |= 1 << day
        by_weekday = 0
        table = _WEEKDAYS[first]
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                by_weekday |= table[weekday]
        for weekday, n in self.nth:
            by_weekday |= table[weekday] & _WEEKS[n]
        for weekday in self.last:
            by_weekday |= 1 << ((table[weekday] & whole).bit_length() - 1)
        both = by_month_day & by_weekday if self.intersect else by_month_day | by_weekday
        return both & whole

    def ever(self, months: int) -> bool:
        """Whether any month of the mask ``months`` (bit 1 is January) ever has such a day.

        Every length meets every first weekday within the 400 years of the Gregorian cycle.
        """
        lengths = {MONTH_LENGTHS[month] for month in range(1, 13) if months >> month & 1}
        if months >> 2 & 1:
            lengths.add(29)
        return any(self.mask(length, first) for length in sorted(lengths, reverse=True) for first in range(7))
