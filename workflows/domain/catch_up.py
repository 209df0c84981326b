"""When an occurrence is too late to run (docs/schedules.md, Late, missed, paused)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from workflows.contracts.schedule import CatchUp
from workflows.domain.recurrence import Recurrence

DEFAULT_WINDOW = timedelta(days=1)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def window(catch_up: CatchUp, *, once: bool) -> timedelta | None:
    """How far back a late occurrence may lie: a day by default, without bound for a one-off."""
    if catch_up.window is not None:
        return catch_up.window
    return None if once else DEFAULT_WINDOW


def not_after(
    catch_up: CatchUp, fires_at: datetime, next_fires_at: datetime | None, *, once: bool
) -> datetime | None:
    """The last instant at which a run may have its first chance to fire; None: any.

    ``none``: the grace. ``latest``: until the next occurrence fires, or the grace if that is
    longer, within the window. ``all``: the window.
    """
    if catch_up.policy == "none":
        return later(fires_at, catch_up.grace)
    limit = window(catch_up, once=once)
    bound = None if limit is None else later(fires_at, limit)
    if catch_up.policy == "all" or next_fires_at is None:
        return bound
    wanted = max(next_fires_at, later(fires_at, catch_up.grace))
    return wanted if bound is None else min(wanted, bound)


def missed_before(catch_up: CatchUp, recurrence: Recurrence, now: datetime) -> datetime | None:
    """The nominal instant before which every occurrence is too late at ``now``; None: none is.

    The same rule as ``not_after``, which never decreases from one occurrence to the next: so the
    missed ones are those before one instant, and an outage is not walked.
    """
    once = recurrence.kind == "once"
    nominal_now = later(now, -timedelta(seconds=recurrence.offset))
    by_grace = later(nominal_now, -catch_up.grace)
    if catch_up.policy == "none":
        return by_grace
    limit = window(catch_up, once=once)
    by_window = None if limit is None else later(nominal_now, -limit)
    if catch_up.policy == "all":
        return by_window
    newest_due = recurrence.before(nominal_now)
    if newest_due is None:
        return by_window
    superseded = min(newest_due, by_grace)
    return superseded if by_window is None else max(superseded, by_window)


def later(instant: datetime, by: timedelta) -> datetime:
    """``instant + by``, kept within the calendar."""
    try:
        return instant + by
    except OverflowError:
        return _LAST if by > timedelta(0) else _FIRST
