"""Where other evaluators agree with ours, and where they are known not to.

cronsim follows the same rule at clock changes (Debian's) and reads nearly the same text: it is the
peer for zones. croniter reads day fields, ranges and folds in another way, so it is the peer for
what both read alike, in UTC. What differs is written down below; when one of those tests fails, a
peer has changed, and decision 0006 is worth reading again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workflows.domain.brute_force import utc, wheel_zone
from workflows.contracts.schedule import Schedule
from workflows.domain.recurrence import compile_schedule

MINUTES = st.sampled_from(["0", "30", "*", "*/7", "*/15", "5,35", "10-50/20", "59"])
HOURS = st.sampled_from(["0", "1", "2", "3", "23", "*", "*/2", "*/5", "1-4", "0,12", "8-18/3"])
DAYS = st.sampled_from(["*", "1", "13", "31", "1-7", "1,15", "10-20/5", "L"])
MONTHS = st.sampled_from(["*", "2,5", "*/3", "1,6,12", "3-5", "oct-dec"])
WEEKDAYS = st.sampled_from(["*", "0", "7", "1-5", "mon,wed", "5-7"])
EXPRESSION = st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)
EXTENDED_WEEKDAYS = st.sampled_from(["*", "*/2", "1-5", "fri#2", "5L", "fri#1,1L", "0-7"])
EXTENDED_DAYS = st.sampled_from(["*", "*/2", "*/9", "13", "1-7", "L", "LW"])
SIMULATED = st.tuples(MINUTES, HOURS, EXTENDED_DAYS, MONTHS, EXTENDED_WEEKDAYS).map(" ".join)

STARTS = [
    ("UTC", datetime(2026, 1, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 6, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 30, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 3, 27, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 10, 23, tzinfo=UTC)),
    ("America/Santiago", datetime(2025, 4, 4, tzinfo=UTC)),
    ("America/Santiago", datetime(2025, 9, 5, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(2026, 2, 20, tzinfo=UTC)),
]
PEERS = settings(derandomize=True, deadline=None, max_examples=150)


def ours(cron: str, zone: str, start: datetime, count: int) -> list[datetime]:
    return list(islice(compile_schedule(Schedule(cron=cron, timezone=zone)).forward(start), count))


def known_to_differ(cron: str, zone: str, start: datetime) -> bool:
    """Wildcards whose whole date falls into a gap, and wildcards where midnight does not exist."""
    minute, hour = cron.split()[:2]
    loses_a_date = minute[0] == "*" and hour in ("0", "1", "2", "3", "0,12")
    no_midnight = zone == "America/Santiago" and start.month == 9 and "*" in minute[0] + hour[0]
    return zone != "UTC" and (loses_a_date or no_midnight)


@PEERS
@given(SIMULATED, st.sampled_from(STARTS))
def test_cronsim_agrees(cron: str, place: tuple[str, datetime]) -> None:
    zone, start = place
    if known_to_differ(cron, zone, start):
        return
    theirs = islice(CronSim(cron, start.astimezone(wheel_zone(zone))), 60)
    assert [instant.astimezone(UTC) for instant in theirs] == ours(cron, zone, start, 60)


@PEERS
@given(EXPRESSION, st.integers(0, 4000))
def test_croniter_agrees_in_utc(cron: str, days: int) -> None:
    start = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=days)
    peer = croniter(cron, start)
    theirs = [peer.get_next(datetime) for _ in range(20)]
    assert theirs == ours(cron, "UTC", start, 20)


CRONSIM_DIFFERS = {
    "asked from the second pass, it goes back": (
        *("30 1 * * *", "America/New_York", "2026-11-01T06:10:00Z"),
        *("2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"),
    ),
    "a gap of half an hour swallows an hourly run": (
        *("30 * * * *", "Australia/Lord_Howe", "2026-10-03T15:05:00Z"),
        *("2026-10-03T16:30:00Z", "2026-10-03T15:30:00Z"),
    ),
    "a fold of half an hour swallows an hourly run": (
        *("30 * * * *", "Australia/Lord_Howe", "2026-04-04T14:40:00Z"),
        *("2026-04-04T16:00:00Z", "2026-04-04T15:00:00Z"),
    ),
    "a fold of half an hour swallows a run every fifth hour": (
        *("0 */5 * * *", "Australia/Lord_Howe", "2026-04-04T13:05:00Z"),
        *("2026-04-04T23:30:00Z", "2026-04-04T18:30:00Z"),
    ),
    "a lost date of a wildcard stays lost": (
        *("*/30 2 * * *", "America/New_York", "2026-03-08T06:00:00Z"),
        *("2026-03-09T06:00:00Z", "2026-03-08T07:00:00Z"),
    ),
    "a midnight that does not exist counts as named": (
        *("0 */2 */2 * *", "America/Santiago", "2025-09-06T12:00:00Z"),
        *("2025-09-07T04:00:00Z", "2025-09-07T05:00:00Z"),
    ),
    "a skipped day is made up": (
        *("0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z"),
        *("2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"),
    ),
    "seven with a step stops at once": (
        *("0 0 * * 7/2", "UTC", "2026-03-08T12:00:00Z"),
        *("2026-03-15T00:00:00Z", "2026-03-10T00:00:00Z"),
    ),
}


@pytest.mark.parametrize(
    ("cron", "zone", "after", "theirs", "right"), CRONSIM_DIFFERS.values(), ids=CRONSIM_DIFFERS
)
def test_where_cronsim_differs(cron: str, zone: str, after: str, theirs: str, right: str) -> None:
    assert next(CronSim(cron, utc(after).astimezone(wheel_zone(zone)))).astimezone(UTC) == utc(theirs)
    assert ours(cron, zone, utc(after), 1) == [utc(right)]


CRONSIM_REFUSES = ["@daily", "0 0 ? * mon", "0 0 L-3 * *", "0 0 15W * *", "0 0 * * friL", "H 0 * * *"]


@pytest.mark.parametrize("cron", CRONSIM_REFUSES)
def test_what_only_we_read(cron: str) -> None:
    with pytest.raises(CronSimError):
        CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC))
    assert ours(cron, "UTC", datetime(2026, 1, 1, tzinfo=UTC), 1)


CRONITER_WRONG = {
    "a stepped star in a day field": ("0 0 */2 * 1", "UTC", "2023-05-01T00:00:00Z", "2023-05-15T00:00:00Z"),
    "a fixed time in a fold": (
        "30 1 * * *",
        "America/New_York",
        "2026-11-01T05:30:00Z",
        "2026-11-02T06:30:00Z",
    ),
    "half an hour that happens twice": (
        *("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:45:00Z"),
        "2026-04-05T15:15:00Z",
    ),
}


@pytest.mark.parametrize(("cron", "zone", "after", "right"), CRONITER_WRONG.values(), ids=CRONITER_WRONG)
def test_where_croniter_differs(cron: str, zone: str, after: str, right: str) -> None:
    theirs = croniter(cron, utc(after).astimezone(wheel_zone(zone))).get_next(datetime)
    assert theirs.astimezone(UTC) != utc(right)
    assert ours(cron, zone, utc(after), 1) == [utc(right)]
