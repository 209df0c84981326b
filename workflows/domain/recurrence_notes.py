"""What a preview says beside an occurrence that a clock change concerns."""

from __future__ import annotations

from workflows.domain.recurrence_cron import LONGEST_GAP, CronInstants, gap_minutes
from workflows.domain.zones import Change, from_seconds, year_of

_YEARS_BACK = 8
"""How far back a note looks for a run that was left out before this occurrence."""


def note(instants: CronInstants, instant: int) -> str | None:
    """Why a clock change concerns the occurrence at ``instant``; None when none does."""
    parts = [
        *_folds(instants, instant),
        *(_gap(instants, change, instant) for change in _gaps_before(instants, instant)),
    ]
    return "; ".join(parts) or None


def _folds(instants: CronInstants, instant: int) -> list[str]:
    parts = []
    for change in instants.zone.changes(year_of(instant)):
        size = -change.gap
        if size <= 0 or not change.instant - size <= instant < change.instant + size:
            continue
        second = instant >= change.instant
        twin = instant - size if second else instant + size
        wall = instant + (change.after if second else change.before)
        served = "runs both times" if instants.at_or_after(twin) == twin else "runs once"
        parts.append(
            f"{_time(wall)} happens twice on {_date(wall)} in {instants.zone.name} (the clock goes back from "
            f"{_time(change.instant + change.before)} to {_time(change.instant + change.after)}): "
            f"{served}, this is the {'second' if second else 'first'} time"
        )
    return parts


def _gaps_before(instants: CronInstants, instant: int) -> list[Change]:
    """Gaps with lost runs that no earlier occurrence follows."""
    previous = instants.at_or_before(instant - 1)
    year = year_of(instant)
    first = year - _YEARS_BACK if previous is None else max(year_of(previous), year - _YEARS_BACK)
    found = {
        change
        for past in range(first, year + 1)
        for change in instants.zone.changes(past)
        if change.gap > 0
        and change.instant <= instant
        and (previous is None or previous < change.instant)
        and instants.all.count(*gap_minutes(change))
    }
    return sorted(found)


def _gap(instants: CronInstants, change: Change, instant: int) -> str:
    low, high = gap_minutes(change)
    times: list[str] = []
    total = instants.all.count(low, high)
    minute = instants.all.at_or_after(low)
    while minute is not None and minute < high and len(times) < 3:
        times.append(_time(minute * 60))
        minute = instants.all.at_or_after(minute + 1)
    if total > len(times):
        times.append(f"{total - len(times)} more")
    verb = "does" if total == 1 else "do"
    listed = times[0] if len(times) == 1 else f"{', '.join(times[:-1])} and {times[-1]}"
    turned, shows = _time(change.instant + change.before), _time(change.instant + change.after)
    return (
        f"{listed} {verb} not exist on {_date(low * 60)} in {instants.zone.name} "
        f"(the clock goes forward from {turned} to {shows}): {_verdict(instants, change, instant)}"
    )


def _verdict(instants: CronInstants, change: Change, instant: int) -> str:
    if instants.made_up(change) and instant == change.instant:
        wall = instant + change.after
        if wall % 60 == 0 and instants.all.names(wall // 60):
            return "one run at the first instant after the gap, together with the regular one"
        return "runs at the first instant after the gap"
    if change.gap > LONGEST_GAP:
        return "left out, since a gap of more than three hours is not made up"
    if not instants.owed(change):
        return "a wildcard schedule follows elapsed time, so nothing is made up"
    if instants.gap == "skip":
        return "left out, since gap is 'skip'"
    return "left out, since the first instant after the gap is excluded"


def _time(wall: int) -> str:
    shown = from_seconds(wall)
    return f"{shown:%H:%M:%S}" if wall % 60 else f"{shown:%H:%M}"


def _date(wall: int) -> str:
    return f"{from_seconds(wall):%Y-%m-%d}"
