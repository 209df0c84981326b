"""Pages of a list, and the cursor between two of them.

A cursor holds the sort key of the last row that was given out; the next page begins behind it, so what
is added or taken away in between neither doubles nor hides another row.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from infra.database.errors import BadCursor
from infra.database.types import from_microseconds, to_microseconds

T = TypeVar("T")

_MAX_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: Sequence[T]
    next_cursor: str | None
    """None on the last page."""


def encode_cursor(order: str, *, name: str, instant: datetime | None = None) -> str:
    """A cursor behind the row of this sort key; ``order`` names the list's order."""
    fields = [order, name, None if instant is None else to_microseconds(instant)]
    return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_name(cursor: str, order: str) -> str:
    """The name in a cursor of this order. Raises BadCursor for anything else."""
    name, instant = _decode(cursor, order)
    if instant is not None:
        raise _bad(cursor)
    return name


def decode_instant(cursor: str, order: str) -> tuple[datetime, str]:
    """Instant and name in a cursor of this order. Raises BadCursor for anything else."""
    name, instant = _decode(cursor, order)
    if instant is None:
        raise _bad(cursor)
    return instant, name


def _decode(cursor: str, order: str) -> tuple[str, datetime | None]:
    try:
        if len(cursor) > _MAX_LENGTH:
            raise ValueError("too long")
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        fields = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(fields, list) or len(fields) != 3 or fields[0] != order:
            raise ValueError("not of this list")
        _, name, instant = fields
        if not isinstance(name, str) or not name.isprintable():
            raise ValueError("no name")
        if instant is None:
            return name, None
        if type(instant) is not int:
            raise ValueError("no instant")
        return name, from_microseconds(instant)
    except (ValueError, OverflowError, RecursionError):
        raise _bad(cursor) from None


def _bad(cursor: str) -> BadCursor:
    return BadCursor(f"{cursor[:40]!r} is no cursor of this list; ask for the first page again.")
