"""IANA time zones from the ``tzdata`` wheel: never the host's, whatever its settings.

Instants are whole seconds since the Unix epoch (UTC); a wall clock shows ``instant + offset``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

from workflows.domain.errors import RuleError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
_REACH = 3 * _DAY
"""How far beyond its year a year's table of changes reaches."""
_YEARS_KEPT = 1000
_ODD = ("Factory", "localtime", "posixrules")
_OFFSET = re.compile(r"(?:(?:utc|gmt|z)?\s*([+-])\s*([0-9]{1,2})(?::?([0-9]{2}))?)\Z", re.IGNORECASE)
_ABBREVIATIONS = {
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "MDT": "America/Denver",
    "CST": "America/Chicago",
    "CDT": "America/Chicago",
    "EDT": "America/New_York",
    "BST": "Europe/London",
    "CEST": "Europe/Berlin",
    "EEST": "Europe/Athens",
    "MSK": "Europe/Moscow",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "SGT": "Asia/Singapore",
    "AEST": "Australia/Sydney",
    "AEDT": "Australia/Sydney",
    "NZST": "Pacific/Auckland",
    "BRT": "America/Sao_Paulo",
}


class Change(NamedTuple):
    """The clock moves: at ``instant`` the offset (seconds east of UTC) goes from one to the other."""

    instant: int
    before: int
    after: int

    @property
    def gap(self) -> int:
        """Seconds of wall time that do not exist; negative: seconds that happen twice."""
        return self.after - self.before


class Span(NamedTuple):
    """Instants ``[start, end)``, within one UTC year, during which the offset does not change."""

    start: int
    end: int
    offset: int


class Zone:
    """One zone: its offsets and its changes, as instants."""

    def __init__(self, name: str, info: ZoneInfo) -> None:
        self.name = name
        self.info = info
        fixed = info.utcoffset(None)
        self._fixed = None if fixed is None else _seconds(fixed)
        self._changes: dict[int, tuple[Change, ...]] = {}

    def offset(self, instant: int) -> int:
        """Seconds east of UTC at an instant."""
        if self._fixed is not None:
            return self._fixed
        return _seconds(datetime.fromtimestamp(instant, self.info).utcoffset())

    def changes(self, year: int) -> tuple[Change, ...]:
        """The changes of offset in a UTC year and three days to both sides of it, ascending."""
        if self._fixed is not None:
            return ()
        found = self._changes.get(year)
        if found is None:
            if len(self._changes) >= _YEARS_KEPT:
                self._changes.clear()
            found = self._changes[year] = tuple(self._search(year))
        return found

    def span(self, instant: int) -> Span:
        """The stretch of constant offset around an instant, cut at the ends of its UTC year."""
        year = year_of(instant)
        start, end = year_start(year), year_start(year + 1)
        changes = self.changes(year)
        offset = changes[0].before if changes else self.offset(start)
        for change in changes:
            if change.instant <= instant:
                start, offset = max(start, change.instant), change.after
            else:
                end = min(end, change.instant)
                break
        return Span(start, end, offset)

    def instant(self, wall: int, *, last: bool = False) -> int:
        """The instant of a wall-clock second: the earlier or ``last`` one when it happens twice.

        A second that does not exist is answered with the first instant after the gap.
        """
        if (gap := self.gap_at(wall)) is not None:
            return gap.instant
        offsets = {offset for change in self._around(wall) for offset in change[1:]}
        found = [
            instant
            for offset in offsets or {self.offset(wall)}
            if self.offset(instant := wall - offset) == offset
        ]
        return max(found) if last else min(found)

    def gap_at(self, wall: int) -> Change | None:
        """The change whose gap swallows this wall-clock second, if one does."""
        for change in self._around(wall):
            if change.instant + change.before <= wall < change.instant + change.after:
                return change
        return None

    def _around(self, wall: int) -> tuple[Change, ...]:
        return self.changes(min(max(year_of(wall), FIRST_YEAR), LAST_YEAR))

    def local(self, instant: int) -> datetime:
        """The wall clock at an instant, aware."""
        return from_seconds(instant).astimezone(self.info)

    def _search(self, year: int) -> Iterator[Change]:
        # A sample a day finds every change: no zone has two within a day (a test compares all
        # zones with the transitions in their files).
        low = year_start(year) - _REACH
        offset = self.offset(low)
        for sample in range(low + _DAY, year_start(year + 1) + _REACH + _DAY, _DAY):
            after = self.offset(sample)
            if after != offset:
                yield Change(self._bisect(sample - _DAY, sample), offset, after)
                offset = after

    def _bisect(self, low: int, high: int) -> int:
        before = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high


FIRST_YEAR, LAST_YEAR = 2, 9998
"""Schedules live in these years, so that no offset leads out of the calendar."""


def zone(name: str, pointer: str = "/schedule/timezone") -> Zone:
    """The zone with exactly this IANA name, else ``RuleError`` with a suggestion.

    The verdict does not depend on the platform: the name is looked up in the wheel's index, and
    no path is made of a name that is not in it.
    """
    if name not in names():
        raise RuleError(_refusal(name), code="unknown_zone", pointer=pointer)
    return _load(name)


@lru_cache(maxsize=1024)
def _load(name: str) -> Zone:
    resource = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with resource.open("rb") as file:
        return Zone(name, ZoneInfo.from_file(file, key=name))


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """Every name that is accepted: the keys of the wheel's index, links included."""
    index = files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(
        name
        for name in index.split()
        if name not in _ODD and not name.startswith(("right/", "posix/", "SystemV/"))
    )


@lru_cache(maxsize=1)
def tzdata_version() -> str:
    """The release of the tz database in use, such as ``2025b``: later ones sort later."""
    return str(import_module("tzdata").IANA_VERSION)


def _refusal(name: str) -> str:
    suggestion = _suggestion(name) if 0 < len(name) <= 64 and name.isascii() else None
    shown = repr(name if len(name) <= 64 else name[:61] + "…")
    hint = f"write {suggestion}" if suggestion else "write a name such as 'Europe/London' or 'UTC'"
    return f"{shown} is not a time zone of the IANA database {tzdata_version()}; {hint}"


def _suggestion(name: str) -> str | None:
    stripped = name.strip()
    by_lower = {known.lower(): known for known in names()}
    plain = stripped.lower().replace(" ", "_").removeprefix("right/").removeprefix("posix/")
    if plain in by_lower:
        return repr(by_lower[plain])
    if match := _OFFSET.match(stripped):
        return _by_offset(match[1], int(match[2]), int(match[3] or 0))
    if stripped.upper() in _ABBREVIATIONS:
        return f"the place instead of an abbreviation, such as {_ABBREVIATIONS[stripped.upper()]!r}"
    cities = {known.rpartition("/")[2].lower(): known for known in sorted(names()) if "/" in known}
    if plain.rpartition("/")[2] in cities:
        return repr(cities[plain.rpartition("/")[2]])
    close = get_close_matches(plain, by_lower, n=1, cutoff=0.7)
    return repr(by_lower[close[0]]) if close else None


def _by_offset(sign: str, hours: int, minutes: int) -> str | None:
    if hours == minutes == 0:
        return "'UTC'"
    reverse = "-" if sign == "+" else "+"
    if minutes == 0 and f"Etc/GMT{reverse}{hours}" in names():
        side = "east" if sign == "+" else "west"
        plural = "" if hours == 1 else "s"
        return (
            f"'Etc/GMT{reverse}{hours}' for {hours} hour{plural} {side} of UTC (its sign is reversed), "
            "or better the name of a place, which follows its clock changes"
        )
    return None


def to_seconds(instant: datetime) -> int:
    """Whole seconds since the epoch, fractions rounded up. ``instant`` is aware."""
    since = instant - EPOCH
    return since.days * _DAY + since.seconds + (since.microseconds > 0)


def from_seconds(instant: int) -> datetime:
    return EPOCH + timedelta(seconds=instant)


def year_of(instant: int) -> int:
    return _naive(instant).year


def year_start(year: int) -> int:
    return (datetime(year, 1, 1, tzinfo=UTC) - EPOCH).days * _DAY


def _naive(instant: int) -> datetime:
    return _NAIVE_EPOCH + timedelta(seconds=instant)


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * _DAY + offset.seconds


_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
