"""The form of an instant in a request: a full RFC 3339 text, so that no number passes for one."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from workflows.contracts.base import Instant

FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Far from the calendar's ends, so that no offset and no spread leads out of it."""
_FORM = re.compile(r"(\d{4})-\d{2}-\d{2}[Tt]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?([Zz]|[+-]\d{2}:?\d{2})?", re.ASCII)


def instant_fault(value: Any) -> str | None:
    """What is wrong with a text that should be an instant, or a local time; None if nothing."""
    if not isinstance(value, str) or not (found := _FORM.fullmatch(value)):
        return "Give an instant in RFC 3339, such as `2026-12-01T09:00:00Z`."
    if not FIRST_YEAR <= int(found.group(1)) <= LAST_YEAR:
        return f"The year must lie between {FIRST_YEAR} and {LAST_YEAR}."
    return None


def _checked(value: Any) -> Any:
    fault = instant_fault(value)
    if fault:
        raise ValueError(fault)
    return value


QueryInstant = Annotated[Instant, BeforeValidator(_checked)]
