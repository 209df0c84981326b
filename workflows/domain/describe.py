"""A resolved schedule in plain English, for previews."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise

from workflows.contracts.schedule import Schedule
from workflows.domain.cron import Cron, parse_all
from workflows.domain.zones import Zone

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_ALL_DAYS = (1 << 32) - 2
_ALL_WEEKDAYS = (1 << 7) - 1
_TIMES_LISTED = 6
_LISTED = 12


def describe(schedule: Schedule, zone: Zone, seed: str = "") -> str:
    """One sentence without a full stop; ``seed`` resolves ``H`` as in ``cron.parse``."""
    if schedule.cron is not None:
        parts = [describe_cron(cron) for cron in parse_all(schedule.cron, seed=seed)]
        sentence = f"{'; and '.join(parts)} ({zone.name})"
    elif schedule.every is not None:
        anchor = "" if schedule.anchor is None else f", counted from {schedule.anchor:%Y-%m-%d %H:%M:%S} UTC"
        sentence = f"every {_duration(schedule.every)} of elapsed time{anchor}"
    elif schedule.at is not None:
        local = schedule.at.astimezone(zone.info)
        sentence = f"once, on {local:%Y-%m-%d} at {local:%H:%M:%S} ({zone.name})"
    else:
        sentence = "no schedule"
    return sentence[0].upper() + sentence[1:]


def describe_cron(cron: Cron) -> str:
    """``at 09:00, Monday to Friday``: one expression, without its zone."""
    parts = [_time(cron), *_days(cron)]
    months = _values(cron.months)
    if len(months) < 12:
        parts.append(f"in {_join(_runs(months, lambda n: _MONTHS[n - 1]))}")
    return ", ".join(parts)


def _time(cron: Cron) -> str:
    minutes, hours = _values(cron.minutes), _values(cron.hours)
    every_hour = len(hours) == 24
    if len(minutes) * len(hours) <= _TIMES_LISTED:
        return f"at {_join([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    if every_hour and minutes == [0]:
        return "every hour, on the hour"
    of_hours = "of every hour" if every_hour else _of_hours(hours)
    if len(minutes) == 60:
        return "every minute" if every_hour else f"every minute {of_hours}"
    step = _step(minutes, 60)
    if step and minutes[0] == 0:
        return f"every {step} minutes" if every_hour else f"every {step} minutes {of_hours}"
    plural = "minute" if len(minutes) == 1 else "minutes"
    return f"at {plural} {_join(_runs(minutes, str))} {of_hours}"


def _of_hours(hours: Sequence[int]) -> str:
    step = _step(hours, 24)
    if step and hours[0] == 0:
        return f"of every {_ordinal(step)} hour"
    plural = "hour" if len(hours) == 1 else "hours"
    return f"of the {plural} {_join(_runs(hours, lambda hour: f'{hour:02}'))}"


def _days(cron: Cron) -> list[str]:
    days = cron.days
    by_day = None if days.month_days == _ALL_DAYS else _month_days(cron)
    plain = days.weekdays == _ALL_WEEKDAYS
    by_weekday = None if plain else _weekdays(cron)
    if days.intersect:
        if by_day and by_weekday:
            return [by_day, f"but only {by_weekday}"]
        return [by_day or by_weekday or "every day"]
    if by_day is None or by_weekday is None:
        return ["every day"]
    return [f"{by_day} and also {by_weekday}"]


def _month_days(cron: Cron) -> str:
    special = cron.days.special
    if special is None:
        numbers = _values(cron.days.month_days)
        return f"on day{'' if len(numbers) == 1 else 's'} {_join(_runs(numbers, str))} of the month"
    if special.kind == "last_weekday":
        return "on the last Monday-to-Friday day of the month"
    if special.kind == "nearest_weekday":
        return f"on the Monday-to-Friday day nearest to day {special.n} of the month"
    if special.n == 0:
        return "on the last day of the month"
    return f"{special.n} day{'' if special.n == 1 else 's'} before the last day of the month"


def _weekdays(cron: Cron) -> str:
    names = _runs(_values(cron.days.weekdays), lambda n: _WEEKDAYS[n])
    names += [f"the {_NTH[n]} {_WEEKDAYS[weekday]} of the month" for weekday, n in cron.days.nth]
    names += [f"the last {_WEEKDAYS[weekday]} of the month" for weekday in cron.days.last]
    return f"on {_join(names)}"


def _values(mask: int) -> list[int]:
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


def _step(values: Sequence[int], size: int) -> int:
    """The even step with which the values go round the whole field, or 0."""
    if len(values) < 2 or size % len(values):
        return 0
    step = size // len(values)
    return step if step > 1 and all(b - a == step for a, b in pairwise(values)) else 0


def _runs(values: Sequence[int], name: Callable[[int], str]) -> list[str]:
    """Names of the values, three or more in a row as ``a to b``."""
    names: list[str] = []
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and values[end] == values[end - 1] + 1:
            continue
        run = values[start:end]
        names += [f"{name(run[0])} to {name(run[-1])}"] if len(run) > 2 else [name(value) for value in run]
        start = end
    return names


def _join(names: Sequence[str]) -> str:
    if len(names) > _LISTED:
        names = [*names[: _LISTED - 1], f"{len(names) - _LISTED + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _ordinal(number: int) -> str:
    return f"{number}{'nd' if number == 2 else 'rd' if number == 3 else 'th'}"


def _duration(duration: timedelta) -> str:
    seconds = duration.seconds
    parts = (
        (duration.days, "day"),
        (seconds // 3600, "hour"),
        (seconds // 60 % 60, "minute"),
    )
    named = [f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in parts if n]
    rest = seconds % 60 + duration.microseconds / 1_000_000
    if rest:
        named.append(f"{rest:g} second{'' if rest == 1 else 's'}")
    return _join(named)
