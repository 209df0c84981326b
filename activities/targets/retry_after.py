"""The ``Retry-After`` header: RFC 9110, sections 10.2.3 and 5.6.7."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from workflows.domain.retry import MAX_RETRY_AFTER

MAX_RETRY_AFTER_S = MAX_RETRY_AFTER.total_seconds()

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
_CLOCK = r"(?P<hour>[0-2][0-9]):(?P<minute>[0-5][0-9]):(?P<second>[0-6][0-9])"
_SHORT = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_FORMS = (
    re.compile(rf"{_SHORT}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_CLOCK} GMT"),
    re.compile(rf"{_LONG}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_CLOCK} GMT"),
    re.compile(rf"{_SHORT} {_MONTH} (?P<day>[0-9 ][0-9]) {_CLOCK} (?P<year>[0-9]{{4}})"),
)
"""IMF-fixdate, and the obsolete forms of RFC 850 and of asctime()."""


def first_retry_after(texts: Iterable[str], *, now: datetime) -> float | None:
    """Seconds to wait by the first of the headers that says something sensible: a proxy may add its own."""
    waits = (parse_retry_after(text, now=now) for text in texts)
    return next((wait for wait in waits if wait is not None), None)


def parse_retry_after(text: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, from 0 to 3600; None if the header is absent or says nothing sensible.

    A date is held against ``now``, our own clock. One in the past asks for nothing.
    """
    if text is None:
        return None
    text = text.strip(" \t")
    if text.isascii() and text.isdigit():
        # Too many digits to be worth converting are far beyond the cap all the same.
        digits = text.lstrip("0")
        return MAX_RETRY_AFTER_S if len(digits) > 9 else min(float(digits or "0"), MAX_RETRY_AFTER_S)
    instant = _parse_date(text, now)
    if instant is None or instant <= now:
        return None
    return min((instant - now).total_seconds(), MAX_RETRY_AFTER_S)


def _parse_date(text: str, now: datetime) -> datetime | None:
    for form in _FORMS:
        if found := form.fullmatch(text):
            year = int(found["year"])
            if len(found["year"]) == 2:
                year += now.year // 100 * 100
                if year > now.year + 50:
                    year -= 100  # RFC 9110: more than 50 years ahead means the past.
            try:
                return datetime(
                    year,
                    _MONTHS.index(found["month"]) + 1,
                    int(found["day"]),
                    int(found["hour"]),
                    int(found["minute"]),
                    min(int(found["second"]), 59),
                    tzinfo=UTC,
                )
            except ValueError:
                return None
    return None
