"""What ``except`` leaves out of a schedule: windows, local dates, minutes named by a cron expression.

An expression excludes every instant whose local minute it names, on both passes of a fold. Dates
and expressions are taken out of a cron schedule's own calendar; for intervals and one-offs they
are laid over the instants here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from datetime import date

from workflows.domain.cron import Cron
from workflows.domain.cron_calendar import DAY, WHOLE_DAY, Calendar
from workflows.domain.recurrence_instants import Count, Instants
from workflows.domain.zones import Zone

_EPOCH = date(1970, 1, 1).toordinal()
_STEPS = 20_000
"""Excluded stretches looked at in one search; beyond them nothing is taken to follow."""
_RUNS = 10_000
"""Allowed stretches looked at in one count."""


class Windows:
    """Half-open windows ``[start, end)`` of instants, merged."""

    def __init__(self, windows: Iterable[tuple[int, int]]) -> None:
        merged: list[tuple[int, int]] = []
        for start, end in sorted(windows):
            if start >= end:
                continue
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self.merged = tuple(merged)
        self._starts = [start for start, _ in merged]

    def covering(self, instant: int) -> tuple[int, int] | None:
        """The window an instant lies in."""
        place = bisect_right(self._starts, instant) - 1
        return self.merged[place] if place >= 0 and instant < self.merged[place][1] else None


class AllowedInstants:
    """The instants of another schedule, less those whose local date or minute is excluded."""

    def __init__(
        self, instants: Instants, zone: Zone, exclude: Sequence[Cron], dates: Collection[date]
    ) -> None:
        self.instants = instants
        self.zone = zone
        self._calendar = Calendar(exclude)
        self._dates = dates

    def at_or_after(self, instant: int) -> int | None:
        steps = _STEPS
        found = self.instants.at_or_after(instant)
        while found is not None and steps:
            steps -= 1
            resumed = self._beyond(found)
            if resumed == found:
                return found
            found = self.instants.at_or_after(resumed)
        return None

    def at_or_before(self, instant: int) -> int | None:
        steps = _STEPS
        found = self.instants.at_or_before(instant)
        while found is not None and steps:
            steps -= 1
            resumed = self._short_of(found)
            if resumed == found:
                return found
            found = self.instants.at_or_before(resumed)
        return None

    def count(self, start: int, end: int) -> Count:
        total, runs = 0, _RUNS
        while start < end:
            offset, beyond, free, first = self._day(start)
            beyond = min(beyond, end)
            if free == WHOLE_DAY:
                total += self.instants.count(start, beyond).total
            while free and free != WHOLE_DAY:
                if not runs:
                    return Count(total, complete=False)
                runs -= 1
                low = (free & -free).bit_length() - 1
                size = ((free >> low) ^ ((free >> low) + 1)).bit_length() - 1
                run = (first + low) * 60 - offset
                total += self.instants.count(max(run, start), min(run + size * 60, beyond)).total
                free = free >> (low + size) << (low + size)
            start = beyond
            runs -= 1
            if runs <= 0:
                return Count(total, complete=start >= end)
        return Count(total)

    def _day(self, instant: int) -> tuple[int, int, int, int]:
        """Offset, end of the local day (or of the offset), allowed minutes, the day's first minute."""
        _, beyond, offset = self.zone.span(instant)
        day = (instant + offset) // (DAY * 60)
        excluded = WHOLE_DAY if self._dated(day) else self._calendar.day(day)
        return offset, min(beyond, (day + 1) * DAY * 60 - offset), WHOLE_DAY & ~excluded, day * DAY

    def _dated(self, day: int) -> bool:
        return bool(self._dates) and date.fromordinal(day + _EPOCH) in self._dates

    def _beyond(self, instant: int) -> int:
        """The instant itself if it is allowed, else a later one with nothing allowed between."""
        offset, end, free, first = self._day(instant)
        minute = (instant + offset) // 60 - first
        if free >> minute & 1:
            return instant
        free = free >> minute << minute
        if not free:
            return end
        return min(end, (first + (free & -free).bit_length() - 1) * 60 - offset)

    def _short_of(self, instant: int) -> int:
        """The instant itself if it is allowed, else an earlier one with nothing allowed between."""
        start, _, offset = self.zone.span(instant)
        _, _, free, first = self._day(instant)
        minute = (instant + offset) // 60 - first
        if free >> minute & 1:
            return instant
        free &= (1 << minute) - 1
        last = (first + free.bit_length()) * 60 - offset - 1 if free else first * 60 - offset - 1
        return max(start - 1, last)
