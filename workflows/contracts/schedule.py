"""When a job runs, as the client writes it and as it is stored."""

from __future__ import annotations

import datetime as dt
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from workflows.contracts.base import Duration, Instant, PublicContract, rfc3339

PAST_ALLOWED = timedelta(seconds=60)
"""A one-off this far in the past runs at once; further back it is refused."""


def _write_at(value: datetime | str) -> str:
    return value if isinstance(value, str) else (rfc3339(value) if value.tzinfo else value.isoformat())


LocalOrInstant = Annotated[datetime, PlainSerializer(_write_at, return_type=str, when_used="json")]
"""As a client writes it: with an offset, or naive beside a ``timezone``. Stored resolved, in UTC."""


class Schedule(PublicContract):
    """One of ``cron``, ``every``, ``at``, ``in``.

    ``in`` and an absent ``anchor`` are resolved when a job is accepted, so a stored schedule
    never depends on when it is read.
    """

    cron: str | list[str] | None = None
    """Five fields or a macro (``@daily``), or a list of them, whose union counts."""
    every: Duration | None = None
    """Elapsed time from the anchor, a second at least."""
    anchor: LocalOrInstant | None = None
    """Where ``every`` counts from; absent: the moment the job is accepted."""
    at: LocalOrInstant | None = None
    """Once: an instant, or a local time without offset beside a ``timezone``."""
    in_: Duration | None = Field(default=None, alias="in", serialization_alias="in")
    """Once, so long after the job is accepted."""
    timezone: str | None = None
    """IANA name, as in ``Europe/London``; absent: the installation's."""
    gap: Literal["shift", "skip"] = "shift"
    """Where the clock goes forward over a fixed time of a cron: run at the first instant after it, or not."""
    fold: Literal["first", "last", "both"] = "first"
    """Where the clock goes back over a fixed time of a cron: which of the two."""


class ExceptWindow(PublicContract):
    """Instants left out of a schedule: exactly one of the three forms.

    ``from``/``to``: a half-open window ``[from, to)`` of instants. ``date``: a local date in the
    schedule's zone. ``cron``: every instant this expression names, in the schedule's zone.
    """

    from_: Instant | None = Field(default=None, alias="from", serialization_alias="from")
    """Of a window: its first instant."""
    to: Instant | None = None
    """Of a window: its end, which is not part of it."""
    date: dt.date | None = None
    """A whole day."""
    cron: str | None = None
    """As in a schedule."""


class CatchUp(PublicContract):
    """What happens to occurrences that could not fire in time."""

    policy: Literal["latest", "all", "none"] = "latest"
    """Which of them run all the same; the others are recorded as ``missed``."""
    window: Duration | None = None
    """How far back; null: a day for a recurring job, without bound for a one-off."""
    grace: Duration = timedelta(seconds=90)
    """Up to so much later an occurrence still counts as in time."""
