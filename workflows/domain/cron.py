"""Cron expressions: five fields as POSIX and Vixie cron read them, with the usual extensions.

What is accepted and what is refused is docs/schedules.md, Cron. A refusal names the rewrite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workflows.domain.cron_days import Days
from workflows.domain.cron_fields import MONTHS, SPECS, FieldValues, Refuse, parse_field
from workflows.domain.errors import RuleError

MAX_LENGTH = 256
MAX_EXPRESSIONS = 32

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_BLANKS = re.compile(r"[ \t]+")
_ZONE_PREFIX = re.compile(r"(?:cron_)?tz[ \t]*=[ \t]*([^ \t]*)")
_GO_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?\Z")
_LONGEST_DAY = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. Masks have bit ``v`` for value ``v``."""

    text: str
    """As it was written, without the blanks around it."""
    minutes: int
    hours: int
    months: int
    days: Days
    wildcard: bool
    """The minute or the hour field begins with a star: follows elapsed time at clock changes."""
    hashed: bool
    """Some field holds ``H``: the meaning depends on tenant and job."""
    fields: tuple[str, str, str, str, str]
    """The fields in lower case, macros written out."""
    day_bits: int
    """The minutes of a day: bit ``60 * hour + minute``."""


def parse(text: str, *, seed: str = "", pointer: str = "/schedule/cron") -> Cron:
    """Reads one expression.

    ``seed`` is what ``H`` is hashed on: see ``hash_seed``. Raises ``RuleError`` with ``pointer``.
    No text costs more than its length (at most 256 characters, tested first).
    """

    def refuse(code: str, message: str) -> RuleError:
        return RuleError(message, code=code, pointer=pointer)

    if len(text) > MAX_LENGTH:
        raise refuse("cron_too_long", f"a cron expression has at most {MAX_LENGTH} characters")
    if not text.isascii() or not all(mark == "\t" or " " <= mark <= "~" for mark in text):
        raise refuse(
            "cron_character",
            "a cron expression is one line of ASCII text: "
            "plain digits, with spaces or tabs between the fields",
        )
    stripped = text.strip(" \t")
    fields = _fields(stripped.lower(), stripped, refuse)
    values = [parse_field(field, spec, seed, refuse) for field, spec in zip(fields, SPECS, strict=True)]
    return _assemble(stripped, fields, values, refuse)


def hash_seed(tenant: str, job: str) -> str:
    """What ``H`` and the spread are hashed on: stable for a job, whatever its schedule."""
    return f"{tenant}/{job}"


def parse_all(cron: str | list[str], *, seed: str = "", pointer: str = "/schedule/cron") -> tuple[Cron, ...]:
    """Reads an expression or a list of them; the pointer of a refusal names the element."""
    if isinstance(cron, str):
        return (parse(cron, seed=seed, pointer=pointer),)
    if not cron:
        raise RuleError("the list of cron expressions is empty", code="cron_empty", pointer=pointer)
    if len(cron) > MAX_EXPRESSIONS:
        raise RuleError(
            f"a schedule has at most {MAX_EXPRESSIONS} cron expressions",
            code="cron_too_many",
            pointer=pointer,
        )
    return tuple(parse(text, seed=seed, pointer=f"{pointer}/{n}") for n, text in enumerate(cron))


def _fields(lower: str, written: str, refuse: Refuse) -> tuple[str, str, str, str, str]:
    if match := _ZONE_PREFIX.match(lower):
        zone = written[match.start(1) : match.end(1)] or "Europe/London"
        raise refuse("cron_zone", f"a zone does not belong in the expression; {_use_zone(zone)}")
    if lower.startswith("@"):
        lower = _macro(lower, refuse)
    fields = _BLANKS.split(lower) if lower else []
    if len(fields) == 5:
        return (fields[0], fields[1], fields[2], fields[3], fields[4])
    if len(fields) < 5:
        raise refuse(
            "cron_fields",
            f"expected 5 fields (minute, hour, day of month, month, day of week), found {len(fields)}; "
            "write '*' where any value will do",
        )
    raise refuse("cron_fields", _too_many(fields, _BLANKS.split(written)))


def _macro(lower: str, refuse: Refuse) -> str:
    if lower in _MACROS:
        return _MACROS[lower]
    name, _, argument = lower.partition(" ")
    if name == "@reboot":
        raise refuse(
            "cron_macro",
            "@reboot has no meaning in a service; trigger the job, or use `at` to run it once",
        )
    if name.startswith("@every"):
        raise refuse("cron_macro", f"@every is an interval; use the field {_interval(argument.strip())}")
    raise refuse("cron_macro", f"unknown macro; write five fields or one of {', '.join(_MACROS)}")


def _interval(argument: str) -> str:
    match = _GO_DURATION.match(argument)
    groups = match.groups() if match else ()
    parts = "".join(f"{int(n)}{unit}" for n, unit in zip(groups, "HMS", strict=False) if int(n or 0))
    if not parts:
        return '"every", such as {"every": "PT5M"}'
    return f'{{"every": "PT{parts}"}}'


def _use_zone(zone: str) -> str:
    return f'use the field "timezone": "{zone}"'


def _too_many(fields: list[str], written: list[str]) -> str:
    found = f"expected 5 fields, found {len(fields)}"
    if len(fields) > 7:
        return f"{found}; write minute, hour, day of month, month, day of week"
    if any(_looks_like_path(field) for field in fields[5:]):
        if written[-1][0].isalpha():
            return f"{found}; a zone does not belong in the expression; {_use_zone(written[-1])}"
        return f"{found}; a command does not belong in the expression: it is the job's target"
    rewrites = _without_extras(fields)
    hint = " or ".join(f"'{rewrite}'" for rewrite in rewrites) or "minute, hour, day, month, weekday"
    return (
        f"{found}; there is no field for seconds or years: write {hint}, "
        "and use `every` for less than a minute"
    )


def _looks_like_path(field: str) -> bool:
    return "/" in field and not field[0].isdigit() and field[0] not in "*h"


def _without_extras(fields: list[str]) -> list[str]:
    """What is left without seconds in front (Quartz) or behind (croniter) and the year, if it parses."""
    rewrites = []
    for rewrite in dict.fromkeys((" ".join(fields[1:6]), " ".join(fields[:5]))):
        try:
            parse(rewrite)
        except RuleError:
            continue
        rewrites.append(rewrite)
    return rewrites


def _assemble(
    text: str, fields: tuple[str, str, str, str, str], values: list[FieldValues], refuse: Refuse
) -> Cron:
    minute, hour, day, month, weekday = values
    days = Days(
        month_days=day.mask,
        special=day.special,
        weekdays=weekday.mask,
        nth=tuple(weekday.nth),
        last=tuple(weekday.last),
        intersect=day.star or weekday.star,
    )
    if not days.ever(month.mask):
        raise refuse("cron_never", _never(fields, day, month))
    return Cron(
        text=text,
        minutes=minute.mask,
        hours=hour.mask,
        months=month.mask,
        days=days,
        wildcard=minute.star or hour.star,
        hashed=any(value.hashed for value in values),
        fields=fields,
        day_bits=sum(minute.mask << (60 * h) for h in range(24) if hour.mask >> h & 1),
    )


def _never(fields: tuple[str, str, str, str, str], day: FieldValues, month: FieldValues) -> str:
    named = [number for number in range(1, 13) if month.mask >> number & 1]
    most = max(_LONGEST_DAY.get(number, 31) for number in named)
    names = ", ".join(MONTHS[number - 1] for number in named)
    if (day.special and fields[4] in ("*", "?")) or (day.mask & -day.mask).bit_length() - 1 > most:
        return (
            f"it would never run: no month in the list ({names}) has day {fields[2].upper()}; "
            f"the longest has {most} days, and 'L' is the last day of a month"
        )
    return (
        f"it would never run: no day of {names} is both {fields[2]!r} and {fields[4]!r}; "
        "the two day fields must both match when one of them begins with '*'"
    )
