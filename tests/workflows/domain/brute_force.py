"""A slow second reading of docs/schedules.md: every UTC minute of a window is looked at, one by one.

It shares no code with ``workflows.domain``: its zones are read from the wheel by itself, its fields
are sets, its days are dates. Good for windows of some days.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@lru_cache
def wheel_zone(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def expand(field: str, low: int, high: int) -> set[int]:
    """The values of a field of stars, numbers, ranges and steps."""
    values: set[int] = set()
    for item in field.split(","):
        base, _, step = item.partition("/")
        if base in ("*", "?"):
            first, last = low, high
        elif "-" in base:
            first, last = (int(end) for end in base.split("-"))
        else:
            first, last = int(base), high if step else int(base)
        values.update(range(first, last + 1, int(step or 1)))
    return values


class Expression:
    def __init__(self, text: str) -> None:
        minute, hour, self.day, month, self.weekday = text.lower().split()
        self.minutes, self.hours = expand(minute, 0, 59), expand(hour, 0, 23)
        for number, name in enumerate(MONTHS, 1):
            month = month.replace(name, str(number))
        self.months = expand(month, 1, 12)
        self.known: dict[date, bool] = {}
        self.wildcard = minute[0] == "*" or hour[0] == "*"

    def on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        if self.day[0] in "*?" or self.weekday[0] in "*?":
            return self._month_day(day) and self._weekday(day)
        return self._month_day(day) or self._weekday(day)

    def names(self, local: datetime) -> bool:
        if local.minute not in self.minutes or local.hour not in self.hours:
            return False
        day = local.date()
        if day not in self.known:
            self.known[day] = self.on(day)
        return self.known[day]

    def _month_day(self, day: date) -> bool:
        last = calendar.monthrange(day.year, day.month)[1]
        if self.day == "lw":
            return day == max(d for d in month_of(day) if d.weekday() < 5)
        if self.day[0] == "l":
            return day.day == last - int(self.day[2:] or 0)
        if self.day.endswith("w"):
            if int(self.day[:-1]) > last:
                return False
            wanted = day.replace(day=int(self.day[:-1]))
            workdays = [d for d in month_of(day) if d.weekday() < 5]
            return day == min(workdays, key=lambda d: abs((d - wanted).days))
        return day.day in expand(self.day, 1, 31)

    def _weekday(self, day: date) -> bool:
        for item in self.weekday.split(","):
            for number, name in enumerate(WEEKDAYS):
                item = item.replace(name, str(number))
            same = [d for d in month_of(day) if d.weekday() == day.weekday()]
            number = day.isoweekday() % 7
            if item.endswith("l"):
                if int(item[:-1]) % 7 == number and day == same[-1]:
                    return True
            elif "#" in item:
                wanted, nth = item.split("#")
                if int(wanted) % 7 == number and len(same) >= int(nth) and same[int(nth) - 1] == day:
                    return True
            elif number in {value % 7 for value in expand(item, 0, 7 if "-" in item or item == "7" else 6)}:
                return True
        return False


def month_of(day: date) -> list[date]:
    return [day.replace(day=n + 1) for n in range(calendar.monthrange(day.year, day.month)[1])]


@lru_cache(maxsize=512)
def clock(zone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime, list[datetime]]]:
    """Every UTC minute of ``[start, end)``, the wall clock, the wall minutes left out just before it."""
    info, minutes = wheel_zone(zone), []
    before = (start - MINUTE).astimezone(info)
    while start < end:
        local = start.astimezone(info)
        minutes.append((start, local, _lost(before, local)))
        before = local
        start += MINUTE
    return minutes


def instants(
    expressions: list[str],
    zone: str,
    start: datetime,
    end: datetime,
    *,
    gap: str = "shift",
    fold: str = "first",
) -> list[datetime]:
    """The instants in ``[start, end)``, both on whole minutes of UTC."""
    found: set[datetime] = set()
    for expression in map(Expression, expressions):
        for instant, local, lost in clock(zone, start, end):
            if expression.names(local) and (expression.wildcard or _served(local, fold)):
                found.add(instant)
            if gap == "shift" and 0 < len(lost) <= 180 and _made_up(expression, lost):
                found.add(instant)
    return sorted(found)


def _served(local: datetime, fold: str) -> bool:
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    if not twice or fold == "both":
        return True
    return local.fold == (0 if fold == "first" else 1)


def _lost(before: datetime, after: datetime) -> list[datetime]:
    """The wall-clock minutes that do not exist between two neighbouring minutes."""
    shown, now = before.replace(tzinfo=None, fold=0) + MINUTE, after.replace(tzinfo=None, fold=0)
    lost = []
    while shown < now:
        lost.append(shown)
        shown += MINUTE
    return lost


def _made_up(expression: Expression, lost: list[datetime]) -> bool:
    named = [minute for minute in lost if expression.names(minute)]
    if not expression.wildcard:
        return bool(named)
    for day in {minute.date() for minute in named}:
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001
        whole = [m for n in range(1440) if expression.names(m := midnight + n * MINUTE)]
        if set(whole) <= set(lost):
            return True
    return False


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
