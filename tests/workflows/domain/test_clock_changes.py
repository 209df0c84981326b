"""What happens to a schedule when the clocks change: docs/decisions/0004, written out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.workflows.domain.brute_force import utc
from workflows.contracts.schedule import ExceptWindow, Schedule
from workflows.domain.recurrence import Recurrence, compile_schedule

SECOND = timedelta(seconds=1)


def recurrence(cron: str | list[str], timezone: str, **options: Any) -> Recurrence:
    return compile_schedule(Schedule(cron=cron, timezone=timezone, **options))


def written(instants: list[datetime]) -> list[str]:
    return [instant.strftime("%Y-%m-%dT%H:%MZ") for instant in instants]


def following(schedule: Recurrence, after: str, count: int) -> list[str]:
    found = []
    for instant in schedule.forward(utc(after)):
        found.append(instant)
        if len(found) == count:
            break
    return written(found)


NEXT = {
    "a fixed time in a gap runs at its end": (
        *("30 2 * * *", "America/New_York", "2026-03-08T06:30:00Z"),
        ["2026-03-08T07:00Z", "2026-03-09T06:30Z", "2026-03-10T06:30Z"],
    ),
    "a fixed time in a fold runs once": (
        *("30 1 * * *", "America/New_York", "2026-10-31T16:00:00Z"),
        ["2026-11-01T05:30Z", "2026-11-02T06:30Z", "2026-11-03T06:30Z"],
    ),
    "the day after a fold keeps the wall clock": (
        *("0 20 * * *", "Europe/Paris", "2022-10-29T22:00:00Z"),
        ["2022-10-30T19:00Z", "2022-10-31T19:00Z", "2022-11-01T19:00Z"],
    ),
    "an early morning that is neither missing nor doubled": (
        *("0 6 * * *", "America/New_York", "2024-03-08T08:00:00Z"),
        ["2024-03-08T11:00Z", "2024-03-09T11:00Z", "2024-03-10T10:00Z", "2024-03-11T10:00Z"],
    ),
    "a half-hourly job goes on through a fold": (
        *("*/30 * * * *", "Australia/Melbourne", "2024-04-06T14:00:00Z"),
        [
            *("2024-04-06T14:30Z", "2024-04-06T15:00Z", "2024-04-06T15:30Z", "2024-04-06T16:00Z"),
            *("2024-04-06T16:30Z", "2024-04-06T17:00Z", "2024-04-06T17:30Z"),
        ],
    ),
    "a step over a written range is fixed-time": (
        *("0 1-23/2 * * *", "Europe/London", "2024-10-26T23:00:00Z"),
        ["2024-10-27T00:00Z", "2024-10-27T03:00Z", "2024-10-27T05:00Z", "2024-10-27T07:00Z"],
    ),
    "all hours written out are fixed-time": (
        *("0 0-23 * * *", "America/New_York", "2026-11-01T03:30:00Z"),
        ["2026-11-01T04:00Z", "2026-11-01T05:00Z", "2026-11-01T07:00Z", "2026-11-01T08:00Z"],
    ),
    "a run moved by a gap meets a regular one": (
        *("0 1-4 * * *", "America/New_York", "2026-03-08T05:00:00Z"),
        ["2026-03-08T06:00Z", "2026-03-08T07:00Z", "2026-03-08T08:00Z"],
    ),
    "several fixed hours through a fold": (
        *("0 1-4 * * *", "America/New_York", "2026-11-01T04:00:00Z"),
        ["2026-11-01T05:00Z", "2026-11-01T07:00Z", "2026-11-01T08:00Z", "2026-11-01T09:00Z"],
    ),
    "several fixed minutes in a gap give one run": (
        *("0,15,45 2 * * *", "America/New_York", "2026-03-08T06:00:00Z"),
        ["2026-03-08T07:00Z", "2026-03-09T06:00Z"],
    ),
    "no midnight in Santiago": (
        *("0 0 * * *", "America/Santiago", "2025-09-07T03:30:00Z"),
        ["2025-09-07T04:00Z", "2025-09-08T03:00Z"],
    ),
    "no midnight in Havana": (
        *("0 0 * * *", "America/Havana", "2026-03-08T04:30:00Z"),
        ["2026-03-08T05:00Z", "2026-03-09T04:00Z"],
    ),
    "no midnight in Cairo": (
        *("0 0 * * *", "Africa/Cairo", "2023-04-27T12:00:00Z"),
        ["2023-04-27T22:00Z", "2023-04-28T21:00Z"],
    ),
    "no midnight in Beirut": (
        *("0 0 * * *", "Asia/Beirut", "2017-03-25T12:00:00Z"),
        ["2017-03-25T22:00Z", "2017-03-26T21:00Z"],
    ),
    "no midnight in Sao Paulo": (
        *("0 0 * * *", "America/Sao_Paulo", "2018-11-04T02:00:00Z"),
        ["2018-11-04T03:00Z", "2018-11-05T02:00Z"],
    ),
    "back across midnight, asked between": (
        *("0 0 * * *", "America/Sao_Paulo", "2018-02-17T02:05:00Z"),
        ["2018-02-18T03:00Z"],
    ),
    "half past eleven twice in Santiago": (
        *("30 23 * * *", "America/Santiago", "2025-04-05T15:00:00Z"),
        ["2025-04-06T02:30Z", "2025-04-07T03:30Z"],
    ),
    "half past eleven twice in Cairo": (
        *("30 23 * * *", "Africa/Cairo", "2023-10-26T09:00:00Z"),
        ["2023-10-26T20:30Z", "2023-10-27T21:30Z"],
    ),
    "a gap of half an hour": (
        *("0 2 * * *", "Australia/Lord_Howe", "2023-09-29T00:00:00Z"),
        ["2023-09-29T15:30Z", "2023-09-30T15:30Z", "2023-10-01T15:00Z"],
    ),
    "a fold of half an hour, fixed": (
        *("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z"),
        ["2026-04-04T14:45Z", "2026-04-05T15:15Z"],
    ),
    "a fold of half an hour, hourly": (
        *("45 * * * *", "Australia/Lord_Howe", "2026-04-04T13:00:00Z"),
        ["2026-04-04T13:45Z", "2026-04-04T14:45Z", "2026-04-04T15:15Z", "2026-04-04T16:15Z"],
    ),
    "Ramadan begins in Casablanca": (
        *("30 2 * * *", "Africa/Casablanca", "2024-03-09T00:00:00Z"),
        ["2024-03-09T01:30Z", "2024-03-10T01:30Z", "2024-03-11T02:30Z"],
    ),
    "Ramadan ends in Casablanca": (
        *("30 2 * * *", "Africa/Casablanca", "2024-04-13T00:00:00Z"),
        ["2024-04-13T02:30Z", "2024-04-14T02:00Z", "2024-04-15T01:30Z"],
    ),
    "minute zero in Kolkata": (
        *("0 * * * *", "Asia/Kolkata", "2026-02-21T00:00:00Z"),
        ["2026-02-21T00:30Z", "2026-02-21T01:30Z", "2026-02-21T02:30Z"],
    ),
    "midnight in Kathmandu": (
        *("0 0 * * *", "Asia/Kathmandu", "2026-02-21T00:00:00Z"),
        ["2026-02-21T18:15Z", "2026-02-22T18:15Z"],
    ),
    "every fifth hour in Kathmandu": (
        *("0 */5 * * *", "Asia/Kathmandu", "2026-02-20T18:00:00Z"),
        [
            *("2026-02-20T18:15Z", "2026-02-20T23:15Z", "2026-02-21T04:15Z", "2026-02-21T09:15Z"),
            *("2026-02-21T14:15Z", "2026-02-21T18:15Z"),
        ],
    ),
    "asked from the second pass": (
        *("30 * * * *", "Europe/Helsinki", "2017-10-29T01:45:00Z"),
        ["2017-10-29T02:30Z", "2017-10-29T03:30Z", "2017-10-29T04:30Z"],
    ),
    "a jump over months takes the target's offset": (
        *("* * * */3 *", "America/New_York", "2015-02-15T05:00:00Z"),
        ["2015-04-01T04:00Z"],
    ),
    "Sunday to Thursday across a change": (
        *("0 0 * * 0-4", "America/Chicago", "2021-03-12T06:00:01Z"),
        ["2021-03-14T06:00Z", "2021-03-15T05:00Z"],
    ),
    "UTC has no changes": ("30 1 * * *", "UTC", "2022-10-29T12:00:00Z", ["2022-10-30T01:30Z"]),
    "the signs of Etc are reversed": (
        "0 9 * * *",
        "Etc/GMT+5",
        "2026-01-01T00:00:00Z",
        ["2026-01-01T14:00Z"],
    ),
    "a skipped date is not made up": (
        *("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z"),
        ["2011-12-29T22:00Z", "2011-12-30T22:00Z", "2011-12-31T22:00Z"],
    ),
    "a wildcard whose whole date is in the gap runs once": (
        *("*/30 2 * * *", "America/New_York", "2026-03-08T06:00:00Z"),
        ["2026-03-08T07:00Z", "2026-03-09T06:00Z", "2026-03-09T06:30Z"],
    ),
    "a wildcard with a run left on that date gets nothing extra": (
        *("*/30 2-3 * * *", "America/New_York", "2026-03-08T06:00:00Z"),
        ["2026-03-08T07:00Z", "2026-03-08T07:30Z", "2026-03-09T06:00Z"],
    ),
    "a wildcard hour through a gap": (
        *("30 * * * *", "America/New_York", "2026-03-08T06:00:00Z"),
        ["2026-03-08T06:30Z", "2026-03-08T07:30Z"],
    ),
    "two hours of wildcard minutes through a fold": (
        *("*/30 1 * * *", "America/New_York", "2026-11-01T04:45:00Z"),
        [
            *("2026-11-01T05:00Z", "2026-11-01T05:30Z", "2026-11-01T06:00Z", "2026-11-01T06:30Z"),
            "2026-11-02T06:00Z",
        ],
    ),
    "a clock that goes back from 00:01 to 23:01": (
        *("0 0 * * *", "America/St_Johns", "2010-11-06T12:00:00Z"),
        ["2010-11-07T02:30Z", "2010-11-08T03:30Z"],
    ),
    "each expression of a list follows its own class": (
        *(["30 1 * * *", "15 * * * *"], "America/New_York", "2026-11-01T04:45:00Z"),
        ["2026-11-01T05:15Z", "2026-11-01T05:30Z", "2026-11-01T06:15Z", "2026-11-01T07:15Z"],
    ),
    "an instant named twice by a list is one": (
        *(["0 9 * * *", "0 */3 * * *"], "America/New_York", "2026-06-01T12:30:00Z"),
        ["2026-06-01T13:00Z", "2026-06-01T16:00Z"],
    ),
    "a list whose wildcard meets the moved run": (
        *(["30 2 * * *", "0 * * * *"], "America/New_York", "2026-03-08T06:00:00Z"),
        ["2026-03-08T07:00Z", "2026-03-08T08:00Z"],
    ),
}


@pytest.mark.parametrize(("cron", "timezone", "after", "instants"), NEXT.values(), ids=NEXT)
def test_next_instants(cron: str | list[str], timezone: str, after: str, instants: list[str]) -> None:
    schedule = recurrence(cron, timezone)
    assert following(schedule, after, len(instants)) == instants
    behind, since = utc(instants[-1]) + SECOND, utc(after) + SECOND
    assert written(list(schedule.backward(behind, since))) == instants[::-1]


CHOSEN = {
    "gap skip leaves the day out": (
        *("30 2 * * *", {"gap": "skip"}, "2026-03-07T12:00:00Z"),
        ["2026-03-09T06:30Z", "2026-03-10T06:30Z"],
    ),
    "gap skip leaves a lost date of a wildcard out": (
        *("*/30 2 * * *", {"gap": "skip"}, "2026-03-07T12:00:00Z"),
        ["2026-03-09T06:00Z", "2026-03-09T06:30Z"],
    ),
    "gap skip keeps a regular run at its end": (
        *("0 2,3 * * *", {"gap": "skip"}, "2026-03-08T06:00:00Z"),
        ["2026-03-08T07:00Z", "2026-03-09T06:00Z"],
    ),
    "fold last": (
        *("30 1 * * *", {"fold": "last"}, "2026-10-31T12:00:00Z"),
        ["2026-11-01T06:30Z", "2026-11-02T06:30Z"],
    ),
    "fold both": (
        *("30 1 * * *", {"fold": "both"}, "2026-10-31T12:00:00Z"),
        ["2026-11-01T05:30Z", "2026-11-01T06:30Z", "2026-11-02T06:30Z"],
    ),
    "fold last does not concern a wildcard": (
        *("30 * * * *", {"fold": "last"}, "2026-11-01T05:00:00Z"),
        ["2026-11-01T05:30Z", "2026-11-01T06:30Z", "2026-11-01T07:30Z"],
    ),
}


@pytest.mark.parametrize(("cron", "options", "after", "instants"), CHOSEN.values(), ids=CHOSEN)
def test_a_job_chooses_its_rule(cron: str, options: dict[str, str], after: str, instants: list[str]) -> None:
    assert following(recurrence(cron, "America/New_York", **options), after, len(instants)) == instants


PER_DAY = [
    ("America/New_York", "2026-03-08", "0 * * * *", 23),
    ("America/New_York", "2026-03-08", "*/15 * * * *", 92),
    ("America/New_York", "2026-11-01", "0 * * * *", 25),
    ("America/New_York", "2026-11-01", "*/15 * * * *", 100),
    ("Australia/Lord_Howe", "2026-04-05", "*/15 * * * *", 98),
    ("Australia/Lord_Howe", "2026-10-04", "*/15 * * * *", 94),
    ("Australia/Lord_Howe", "2026-04-05", "0 * * * *", 24),
    ("Australia/Lord_Howe", "2026-10-04", "0 * * * *", 23),
]


@pytest.mark.parametrize(("timezone", "day", "cron", "runs"), PER_DAY)
def test_runs_per_local_day(timezone: str, day: str, cron: str, runs: int) -> None:
    schedule = recurrence(cron, timezone)
    midnight = datetime.fromisoformat(day).replace(tzinfo=schedule.zone.info)
    start = midnight.astimezone(UTC) - SECOND
    end = (midnight + timedelta(days=1)).astimezone(UTC) - SECOND
    assert schedule.count(start, end).total == runs
    assert len(list(schedule.forward(start, end))) == runs


Spans = list[tuple[str, int]]
"""From a local date on, minutes east of UTC at the hour in question."""


def everyday(year: int, hour: int, minute: int, spans: Spans, special: dict[str, str]) -> list[str]:
    """A year of local days at ``hour:minute``; the days of change are ``special``, written out."""
    found, day = [], datetime(year, 1, 1, tzinfo=UTC)
    while day.year == year:
        date = f"{day:%Y-%m-%d}"
        offset = [minutes for first, minutes in spans if first <= date][-1]
        regular = day + timedelta(hours=hour, minutes=minute - offset)
        found.append(special.get(date, written([regular])[0]))
        day += timedelta(days=1)
    return found


NEW_YORK = [("2026-01-01", -300), ("2026-03-09", -240), ("2026-11-02", -300)]
LORD_HOWE = [("2026-01-01", 660), ("2026-04-06", 630), ("2026-10-05", 660)]
SANTIAGO = [("2025-01-01", -180), ("2025-04-06", -240), ("2025-09-07", -180)]
YEARS = {
    "New York 01:30": (
        *(
            "America/New_York",
            2026,
            1,
            30,
            NEW_YORK,
        ),
        {"2026-03-08": "2026-03-08T06:30Z", "2026-11-01": "2026-11-01T05:30Z"},
    ),
    "New York 02:30": (
        *(
            "America/New_York",
            2026,
            2,
            30,
            NEW_YORK,
        ),
        {"2026-03-08": "2026-03-08T07:00Z", "2026-11-01": "2026-11-01T07:30Z"},
    ),
    "London 01:30": (
        *("Europe/London", 2026, 1, 30, [("2026-01-01", 0), ("2026-03-30", 60), ("2026-10-26", 0)]),
        {"2026-03-29": "2026-03-29T01:00Z", "2026-10-25": "2026-10-25T00:30Z"},
    ),
    "London 02:30": (
        *("Europe/London", 2026, 2, 30, [("2026-01-01", 0), ("2026-03-30", 60), ("2026-10-26", 0)]),
        {"2026-03-29": "2026-03-29T01:30Z", "2026-10-25": "2026-10-25T02:30Z"},
    ),
    "Lord Howe 01:30": (
        *(
            "Australia/Lord_Howe",
            2026,
            1,
            30,
            LORD_HOWE,
        ),
        {"2026-04-05": "2026-04-04T14:30Z", "2026-10-04": "2026-10-03T15:00Z"},
    ),
    "Lord Howe 02:30": (
        *(
            "Australia/Lord_Howe",
            2026,
            2,
            30,
            LORD_HOWE,
        ),
        {"2026-04-05": "2026-04-04T16:00Z", "2026-10-04": "2026-10-03T15:30Z"},
    ),
    "Cairo 01:30": (
        *("Africa/Cairo", 2024, 1, 30, [("2024-01-01", 120), ("2024-04-27", 180), ("2024-11-01", 120)]),
        {"2024-04-26": "2024-04-25T22:30Z", "2024-11-01": "2024-10-31T23:30Z"},
    ),
    "Cairo 02:30": (
        *("Africa/Cairo", 2024, 2, 30, [("2024-01-01", 120), ("2024-04-26", 180), ("2024-11-01", 120)]),
        {},
    ),
    "Santiago 01:30": (
        *(
            "America/Santiago",
            2025,
            1,
            30,
            SANTIAGO,
        ),
        {"2025-04-06": "2025-04-06T05:30Z", "2025-09-07": "2025-09-07T04:30Z"},
    ),
    "Santiago 02:30": (
        *(
            "America/Santiago",
            2025,
            2,
            30,
            SANTIAGO,
        ),
        {},
    ),
}


@pytest.mark.parametrize(("zone", "year", "hour", "minute", "spans", "special"), YEARS.values(), ids=YEARS)
def test_a_year_of_a_nightly_job(
    zone: str, year: int, hour: int, minute: int, spans: Spans, special: dict[str, str]
) -> None:
    """Every single instant of a year, forward, backward and counted."""
    schedule = recurrence(f"{minute} {hour} * * *", zone)
    expected = everyday(year, hour, minute, spans, special)
    start, end = utc(expected[0]) - SECOND, utc(expected[-1])
    assert written(list(schedule.forward(start, end))) == expected
    assert written(list(schedule.backward(end + SECOND, start)))[::-1] == expected
    assert schedule.count(start, end).total == len(expected)


def test_a_moved_run_is_excluded_with_what_it_stands_for() -> None:
    """02:30 on Sundays is excluded, so nothing is made up on the Sunday of the change."""
    sundays = ExceptWindow(cron="* 2 * * sun")
    schedule = Schedule(cron="30 2 * * *", timezone="America/New_York")
    found = following(compile_schedule(schedule, except_=[sundays]), "2026-03-07T12:00:00Z", 1)
    assert found == ["2026-03-09T06:30Z"]


def test_a_moved_run_is_excluded_where_it_would_land() -> None:
    three = ExceptWindow(cron="* 3 * * *")
    schedule = Schedule(cron="30 2 * * *", timezone="America/New_York")
    found = following(compile_schedule(schedule, except_=[three]), "2026-03-07T12:00:00Z", 1)
    assert found == ["2026-03-09T06:30Z"]


def test_an_excluded_minute_is_excluded_on_both_passes_of_a_fold() -> None:
    half_past = ExceptWindow(cron="30 1 * * *")
    schedule = Schedule(cron="30 * * * *", timezone="America/New_York")
    found = following(compile_schedule(schedule, except_=[half_past]), "2026-11-01T04:00:00Z", 2)
    assert found == ["2026-11-01T04:30Z", "2026-11-01T07:30Z"]
