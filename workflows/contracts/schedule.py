"""When a job runs, as the client writes it and as it is stored."""

from __future__ import annotations

import datetime as dt
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from workflows.contracts.base import Contract, Duration, Instant, rfc3339


def _write_at(value: datetime | str) -> str:
    return value if isinstance(value, str) else (rfc3339(value) if value.tzinfo else value.isoformat())


LocalOrInstant = Annotated[datetime, PlainSerializer(_write_at, return_type=str, when_used="json")]
"""As a client writes it: with an offset, or naive beside a ``timezone``. Stored resolved, in UTC."""


class Schedule(Contract):
    """One of ``cron``, ``every``, ``at``, ``in`` (semantics.md, Schedules).

    ``in`` and an absent ``anchor`` are resolved when a job is accepted, so a stored schedule
    never depends on when it is read.
    """

    cron: str | list[str] | None = None
    every: Duration | None = None
    anchor: LocalOrInstant | None = None
    at: LocalOrInstant | None = None
    in_: Duration | None = Field(default=None, alias="in", serialization_alias="in")
    timezone: str | None = None
    gap: Literal["shift", "skip"] = "shift"
    fold: Literal["first", "last", "both"] = "first"


class ExceptWindow(Contract):
    """Instants left out of a schedule: exactly one of the three forms.

    ``from``/``to``: a half-open window ``[from, to)`` of instants. ``date``: a local date in the
    schedule's zone. ``cron``: every instant this expression names, in the schedule's zone.
    """

    from_: Instant | None = Field(default=None, alias="from", serialization_alias="from")
    to: Instant | None = None
    date: dt.date | None = None
    cron: str | None = None


class CatchUp(Contract):
    """What happens to occurrences that could not fire in time (semantics.md, Late, missed, paused)."""

    policy: Literal["latest", "all", "none"] = "latest"
    window: Duration | None = None
    """None: a day for a recurring job, without bound for a one-off."""
    grace: Duration = timedelta(seconds=90)
