"""Intervals, one-offs, bounds, exceptions, spread and speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from tests.workflows.domain.brute_force import utc
from workflows.contracts.schedule import ExceptWindow, Schedule
from workflows.domain.recurrence import Recurrence, compile_schedule, spread_offset

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
NOW = datetime(2026, 5, 5, 12, 0, 30, tzinfo=UTC)


def every(seconds: float, anchor: str, **options: Any) -> Recurrence:
    schedule = Schedule(every=timedelta(seconds=seconds), anchor=utc(anchor))
    return compile_schedule(schedule, **options)


def cron(text: str | list[str], zone: str | None = None, **options: Any) -> Recurrence:
    return compile_schedule(Schedule(cron=text, timezone=zone), **options)


def take(recurrence: Recurrence, after: datetime, count: int) -> list[datetime]:
    return list(islice(recurrence.forward(after), count))


def except_cron(*texts: str) -> list[ExceptWindow]:
    return [ExceptWindow(cron=text) for text in texts]


def test_seven_days_of_elapsed_time_move_on_the_wall() -> None:
    week = every(604_800, "2019-03-26T16:00:00+01:00")
    assert take(week, utc("2019-03-26T14:00:00Z"), 2) == [
        utc("2019-03-26T15:00:00Z"),
        utc("2019-04-02T15:00:00Z"),
    ]


@pytest.mark.parametrize(("served", "following"), [(5, 61), (190, 241), (61, 121), (0, 1), (-500, 1)])
def test_an_interval_does_not_drift(served: int, following: int) -> None:
    """From wherever one asks, the next is the anchor plus a whole number of intervals."""
    minutely = every(60, "2026-01-01T00:00:01Z")
    start = utc("2026-01-01T00:00:00Z")
    assert minutely.after(start + served * SECOND) == start + following * SECOND


def test_nothing_runs_before_the_anchor() -> None:
    daily = every(86_400, "2026-06-01T09:00:00Z")
    assert daily.before(utc("2026-06-01T09:00:00Z")) is None
    assert daily.after(NOW) == utc("2026-06-01T09:00:00Z")


def test_fractions_of_an_interval_are_rounded_up_one_by_one() -> None:
    anchor = utc("2026-01-01T00:00:00Z")
    found = take(every(1.5, "2026-01-01T00:00:00Z"), anchor - SECOND, 5)
    assert [int((instant - anchor).total_seconds()) for instant in found] == [0, 2, 3, 5, 6]


def test_a_timer_that_wakes_early_asks_from_the_slot() -> None:
    daily = cron("0 4 * * *")
    slot = daily.after(utc("2026-01-01T03:59:59.995Z"))
    assert slot == utc("2026-01-01T04:00:00Z")
    assert daily.after(slot) == utc("2026-01-02T04:00:00Z")


def test_a_one_off_has_one_occurrence() -> None:
    once = compile_schedule(Schedule(at=NOW))
    assert (once.kind, once.after(NOW - DAY), once.after(NOW)) == ("once", NOW, None)
    assert (once.before(NOW), once.before(NOW + SECOND), once.last(NOW)) == (None, NOW, NOW)
    assert once.count(NOW - DAY, NOW + DAY).total == 1


def test_bounds_are_inclusive() -> None:
    start, end = utc("2026-05-06T00:00:00Z"), utc("2026-05-08T00:00:00Z")
    daily = cron("0 0 * * *", starts_at=start, ends_at=end)
    assert take(daily, NOW - 100 * DAY, 9) == [start, start + DAY, end]
    assert list(daily.backward(NOW + 100 * DAY)) == [end, start + DAY, start]
    assert daily.count(NOW - 100 * DAY, NOW + 100 * DAY).total == 3
    assert (daily.first(), daily.after(end), daily.before(start)) == (start, None, None)


def test_fractions_in_bounds_leave_out_what_lies_beyond_them() -> None:
    daily = cron("0 0 * * *", starts_at=utc("2026-05-06T00:00:00.5Z"), ends_at=utc("2026-05-07T23:59:59.9Z"))
    assert take(daily, NOW, 9) == [utc("2026-05-07T00:00:00Z")]


def test_an_interval_keeps_its_grid_within_bounds() -> None:
    hourly = every(3600, "2026-05-05T00:15:00Z", starts_at=utc("2026-05-05T10:00:00Z"))
    assert hourly.first() == utc("2026-05-05T10:15:00Z")


def test_windows_are_half_open_and_may_overlap() -> None:
    windows = [
        ExceptWindow(**{"from": utc("2026-05-06T00:00:00Z"), "to": utc("2026-05-08T00:00:00Z")}),
        ExceptWindow(**{"from": utc("2026-05-07T12:00:00Z"), "to": utc("2026-05-09T00:00:00Z")}),
        ExceptWindow(**{"from": utc("2026-05-10T00:00:00Z"), "to": utc("2026-05-10T00:00:01Z")}),
    ]
    daily = cron("0 0 * * *", except_=windows)
    kept = [utc(f"2026-05-{day:02}T00:00:00Z") for day in (9, 11, 12)]
    assert take(daily, NOW, 3) == kept
    assert list(daily.backward(kept[-1] + SECOND, NOW))[::-1] == kept
    assert daily.count(NOW, kept[-1]).total == 3


def test_an_excepted_date_is_a_date_of_the_schedules_zone() -> None:
    daily = cron("0 23 * * *", "America/New_York", except_=[ExceptWindow(date=date(2026, 5, 6))])
    assert take(daily, NOW, 2) == [utc("2026-05-06T03:00:00Z"), utc("2026-05-08T03:00:00Z")]


def test_an_excepted_expression_excludes_whole_minutes_of_an_interval() -> None:
    schedule = every(20, "2026-05-05T08:59:10Z", except_=except_cron("* 9-16 * * *"))
    found = take(schedule, utc("2026-05-05T08:59:00Z"), 4)
    assert [f"{instant:%H:%M:%S}" for instant in found] == ["08:59:10", "08:59:30", "08:59:50", "17:00:10"]


ENDLESS = {
    "minutely": (Schedule(cron="* * * * *", timezone="Europe/Paris"), ["* * * * *"]),
    "minutely, by two halves": (Schedule(cron="* * * * *"), ["0-29 * * * *", "30-59 * * * *"]),
    "leap days": (Schedule(cron="0 0 29 2 *", timezone="America/New_York"), ["* * 29 * *"]),
    "fifth Mondays of February": (Schedule(cron="0 0 * 2 mon#5"), ["* * * * mon"]),
    "an interval of a second": (Schedule(every=SECOND, anchor=NOW), ["* * * * *"]),
    "an hourly interval on excluded minutes": (
        Schedule(every=timedelta(hours=1), anchor=NOW.replace(second=0)),
        ["0 * * * *"],
    ),
    "a one-off": (Schedule(at=NOW + DAY), ["* * * * *"]),
}


@pytest.mark.parametrize(("schedule", "excluded"), ENDLESS.values(), ids=ENDLESS)
def test_a_search_that_finds_nothing_ends(schedule: Schedule, excluded: list[str]) -> None:
    recurrence = compile_schedule(schedule, except_=except_cron(*excluded))
    start = time.process_time()
    assert recurrence.after(NOW) is None
    assert recurrence.before(NOW + 36_500 * DAY) is None
    assert recurrence.count(NOW, NOW + 365 * DAY).total == 0
    assert time.process_time() - start < 10, "it walked; what ends by a bound takes a second at most"


def test_spread_is_stable_within_bounds_and_differs_between_jobs() -> None:
    """The very value matters: a deployed job must not move with a release."""
    minute = timedelta(seconds=60)
    assert spread_offset(minute, "acme", "report") == 24
    offsets = {spread_offset(minute, "acme", f"job-{n}") for n in range(1000)}
    assert offsets == set(range(60))
    assert {spread_offset(timedelta(seconds=1.5), "acme", f"job-{n}") for n in range(99)} == {0, 1}
    assert spread_offset(SECOND, "acme", "report") == spread_offset(None, "acme", "report") == 0
    daily = cron("0 9 * * *", tenant="acme", job="report", spread=minute)
    assert daily.after(NOW) == utc("2026-05-06T09:00:00Z")
    assert daily.fires_at(utc("2026-05-06T09:00:00Z")) == utc("2026-05-06T09:00:24Z")


KINDS = {
    "fixed-time": Schedule(cron="0 9 * * *"),
    "wildcard": Schedule(cron=["0 9 * * *", "0 * * * *"]),
    "interval": Schedule(every=DAY, anchor=NOW),
    "once": Schedule(at=NOW),
}


@pytest.mark.parametrize(("kind", "schedule"), KINDS.items(), ids=KINDS)
def test_kinds(kind: str, schedule: Schedule) -> None:
    assert compile_schedule(schedule).kind == kind


@pytest.mark.parametrize("year", [1, 2, 1500, 1969, 9998, 9999])
def test_far_away_years_do_not_break_the_search(year: int) -> None:
    asked = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    for recurrence in (
        cron("0 0 29 2 *", "Europe/Paris"),
        cron("* * * * *"),
        every(60, "2026-01-01T00:00:00Z"),
    ):
        after, before = recurrence.after(asked), recurrence.before(asked)
        assert after is None or after > asked
        assert before is None or before < asked


def best(measured: Callable[[], object], rounds: int = 5, calls: int = 1) -> float:
    """Seconds a call, the best of several rounds: generous, since tests share their machine."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            measured()
        found.append((time.perf_counter() - start) / calls)
    return min(found)


def test_searching_and_counting_do_not_walk() -> None:
    """Bounds several times what was measured: 5 µs, 40 µs, 0.6 ms, 0.4 ms."""
    minutely = cron("* * * * *", "America/New_York")
    assert minutely.count(NOW, NOW + 365 * DAY).total == 525_600
    assert best(lambda: minutely.after(NOW), calls=100) < 0.000_05
    assert best(lambda: cron("* * * * *", "America/New_York"), calls=20) < 0.001
    assert best(lambda: minutely.count(NOW, NOW + 365 * DAY)) < 0.02
    fifth = cron("0 0 * 2 mon#5")
    assert best(lambda: fifth.after(utc("2073-01-01T00:00:00Z"))) < 0.02
