"""Plans: what is due, what was missed, what passed during a pause."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workflows.domain.brute_force import utc
from workflows.contracts.planning import Plan, PlanInput, Stretch
from workflows.contracts.schedule import CatchUp, ExceptWindow, Schedule
from workflows.domain.errors import RuleError
from workflows.domain.planning import plan
from workflows.domain.recurrence import compile_schedule
from workflows.domain.zones import tzdata_version

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def ask(schedule: dict[str, Any], after: str, now: str, **options: Any) -> Plan:
    catch_up = CatchUp.model_validate(options.pop("catch_up", {}))
    return plan(
        PlanInput(
            tenant="acme",
            job="report",
            schedule=Schedule.model_validate(schedule),
            after=utc(after),
            now=utc(now),
            catch_up=catch_up,
            **options,
        )
    )


def times(found: Plan) -> list[str]:
    return [f"{occurrence.scheduled_time:%m-%dT%H:%M:%S}" for occurrence in found.occurrences]


MINUTELY = {"cron": "* * * * *"}
DOWN = ("2026-01-10T00:00:00Z", "2026-01-10T08:00:30Z")


def test_eight_hours_down_are_one_missed_stretch() -> None:
    """480 instants: with ``latest`` 479 are missed and the newest runs, which has not been superseded."""
    found = ask(MINUTELY, *DOWN, catch_up={"grace": 0})
    assert found.missed == Stretch(
        count=479, first=utc("2026-01-10T00:01:00Z"), last=utc("2026-01-10T07:59:00Z")
    )
    assert times(found)[:2] == ["01-10T08:00:00", "01-10T08:01:00"]
    assert found.cursor == utc("2026-01-10T07:59:00Z")
    assert (found.passed, found.exhausted, found.tzdata) == (None, False, tzdata_version())


def test_eight_hours_down_without_catch_up() -> None:
    found = ask(MINUTELY, *DOWN, catch_up={"policy": "none", "grace": 0})
    assert found.missed is not None
    assert (found.missed.count, times(found)[0]) == (480, "01-10T08:01:00")


def test_eight_hours_down_with_everything_caught_up() -> None:
    """In order, in batches of ``limit``."""
    found = ask(MINUTELY, *DOWN, catch_up={"policy": "all"}, limit=500)
    assert found.missed is None
    assert len(found.occurrences) == 500
    assert times(found)[0] == "01-10T00:01:00"
    batch = ask(MINUTELY, *DOWN, catch_up={"policy": "all"}, limit=3)
    assert times(batch) == ["01-10T00:01:00", "01-10T00:02:00", "01-10T00:03:00"]
    assert not batch.exhausted


def test_the_window_decides_how_old_a_caught_up_run_may_be() -> None:
    catch_up = {"policy": "all", "window": "PT1H"}
    found = ask(MINUTELY, "2026-01-10T00:00:00Z", "2026-01-10T03:00:00Z", catch_up=catch_up)
    assert found.missed is not None
    assert (found.missed.count, times(found)[0]) == (119, "01-10T02:00:00")


def test_what_is_within_the_grace_runs() -> None:
    """A worker that comes two intervals late still runs both."""
    found = ask(MINUTELY, "2026-01-10T00:00:00Z", "2026-01-10T00:02:10Z")
    assert found.missed is None
    assert times(found)[0] == "01-10T00:01:00"


def test_frozen_for_78_minutes_without_catch_up() -> None:
    schedule = {"every": "PT10S", "anchor": "2026-01-10T00:00:00Z"}
    catch_up = {"policy": "none", "grace": "PT5S"}
    found = ask(schedule, "2026-01-10T00:00:00Z", "2026-01-10T01:18:08Z", catch_up=catch_up)
    assert found.missed is not None
    assert (found.missed.count, times(found)[0]) == (468, "01-10T01:18:10")


NOT_AFTER = {
    "none: the grace": ({"policy": "none"}, "2026-01-10T09:01:30Z"),
    "none: no grace": ({"policy": "none", "grace": 0}, "2026-01-10T09:00:00Z"),
    "latest: the next occurrence": ({}, "2026-01-10T10:00:00Z"),
    "latest: a longer grace": ({"grace": "PT2H"}, "2026-01-10T11:00:00Z"),
    "latest: a shorter window": ({"window": "PT30M"}, "2026-01-10T09:30:00Z"),
    "latest: a window shorter than the grace": ({"window": "PT10S"}, "2026-01-10T09:00:10Z"),
    "all: a day": ({"policy": "all"}, "2026-01-11T09:00:00Z"),
    "all: the window": ({"policy": "all", "window": "P2D"}, "2026-01-12T09:00:00Z"),
    "a window beyond the calendar": ({"policy": "all", "window": "P3650000D"}, "9999-12-31T23:59:59.999999Z"),
}


@pytest.mark.parametrize(("catch_up", "bound"), NOT_AFTER.values(), ids=NOT_AFTER)
def test_until_when_a_run_may_first_fire(catch_up: dict[str, Any], bound: str) -> None:
    found = ask({"cron": "0 * * * *"}, "2026-01-10T08:30:00Z", "2026-01-10T08:30:00Z", catch_up=catch_up)
    assert found.occurrences[0].not_after == utc(bound)


ONCE = {
    "latest: without bound": ({}, None),
    "all: without bound": ({"policy": "all"}, None),
    "latest: the window if set": ({"window": "PT1H"}, "2026-01-10T10:00:00Z"),
    "none: the grace": ({"policy": "none"}, "2026-01-10T09:01:30Z"),
}


@pytest.mark.parametrize(("catch_up", "bound"), ONCE.values(), ids=ONCE)
def test_until_when_a_one_off_may_first_fire(catch_up: dict[str, Any], bound: str | None) -> None:
    found = ask(
        {"at": "2026-01-10T09:00:00Z"}, "2026-01-10T08:00:00Z", "2026-01-10T08:00:00Z", catch_up=catch_up
    )
    assert found.occurrences[0].not_after == (None if bound is None else utc(bound))
    assert found.exhausted


def test_a_one_off_runs_however_late_and_is_missed_with_a_window() -> None:
    late = ("2026-01-10T08:00:00Z", "2027-01-10T08:00:00Z")
    assert len(ask({"at": "2026-01-10T09:00:00Z"}, *late).occurrences) == 1
    found = ask({"at": "2026-01-10T09:00:00Z"}, *late, catch_up={"window": "P1D"})
    assert (found.occurrences, found.exhausted) == ([], True)
    assert found.missed is not None
    assert (found.missed.count, found.cursor) == (1, utc("2026-01-10T09:00:00Z"))


def test_the_last_occurrence_is_bounded_by_the_window_alone() -> None:
    found = ask(
        {"cron": "0 * * * *"},
        "2026-01-10T08:30:00Z",
        "2026-01-10T08:30:00Z",
        ends_at=utc("2026-01-10T09:00:00Z"),
    )
    assert found.occurrences[0].not_after == utc("2026-01-11T09:00:00Z")
    assert found.exhausted


def test_a_pause_is_passed_not_missed() -> None:
    """Before the pause's end nothing runs; what fires at its very end does not either."""
    found = ask(
        MINUTELY,
        "2026-01-10T00:00:00Z",
        "2026-01-10T08:00:30Z",
        passed_until=utc("2026-01-10T08:00:00Z"),
    )
    assert found.passed == Stretch(
        count=480, first=utc("2026-01-10T00:01:00Z"), last=utc("2026-01-10T08:00:00Z")
    )
    assert found.missed is None
    assert times(found)[0] == "01-10T08:01:00"
    assert found.cursor == utc("2026-01-10T08:00:00Z")


def test_an_occurrence_whose_spread_lies_behind_the_pause_runs() -> None:
    """It fires at 08:00:24, after the resume at 08:00:10."""
    found = ask(
        MINUTELY,
        "2026-01-10T07:58:00Z",
        "2026-01-10T08:00:10Z",
        passed_until=utc("2026-01-10T08:00:10Z"),
        spread=MINUTE,
    )
    assert found.passed is not None
    assert (found.passed.count, times(found)[0]) == (1, "01-10T08:00:00")
    assert found.occurrences[0].fires_at == utc("2026-01-10T08:00:24Z")


def test_a_late_one_is_left_out_and_the_next_takes_its_place() -> None:
    late = utc("2026-01-10T09:00:00Z")
    found = ask(
        {"cron": "0 * * * *"}, "2026-01-10T08:30:00Z", "2026-01-10T09:00:30Z", late_until=late, remaining=1
    )
    assert found.missed == Stretch(count=1, first=late, last=late)
    assert (times(found), found.exhausted) == (["01-10T10:00:00"], True)


def test_max_runs_bounds_what_runs_and_not_what_is_missed() -> None:
    found = ask(MINUTELY, *DOWN, catch_up={"grace": 0}, remaining=2)
    assert found.missed is not None
    assert (found.missed.count, times(found), found.exhausted) == (
        479,
        ["01-10T08:00:00", "01-10T08:01:00"],
        True,
    )


def test_no_runs_left_is_the_end() -> None:
    found = ask(MINUTELY, *DOWN, remaining=0)
    assert (found.occurrences, found.missed, found.exhausted) == ([], None, True)
    assert found.cursor == utc(DOWN[0])


def test_an_end_that_lies_behind_exhausts_the_plan() -> None:
    found = ask(MINUTELY, *DOWN, ends_at=utc("2026-01-10T00:05:00Z"))
    assert found.missed is not None
    assert (found.missed.count, times(found), found.exhausted) == (4, ["01-10T00:05:00"], True)
    assert found.occurrences[0].not_after == utc("2026-01-11T00:05:00Z")


HOUR_GRID = {"every": "PT1H", "anchor": "2026-05-01T00:30:00Z"}
EDITED = {
    "a day that has just passed": ({"cron": "0 8 11 * *"}, "2026-05-12T09:00:00Z", "06-11T08:00:00"),
    "far away, now hourly": ({"cron": "0 * * * *"}, "2026-05-01T10:10:00Z", "05-01T11:00:00"),
    "yearly, now each minute": ({"cron": "* * * * *"}, "2026-05-01T10:10:30Z", "05-01T10:11:00"),
    "at an instant of the new one": ({"cron": "0 * * * *"}, "2026-05-01T10:00:00Z", "05-01T11:00:00"),
    "a moment before one": ({"cron": "0 * * * *"}, "2026-05-01T09:59:59.999Z", "05-01T10:00:00"),
    "an interval with an anchor long ago": (HOUR_GRID, "2026-05-01T10:10:00Z", "05-01T10:30:00"),
    "another zone, where it is past nine": (
        {"cron": "0 9 * * *", "timezone": "Asia/Tokyo"}, "2026-05-01T00:30:00Z", "05-02T00:00:00",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "edited", "following"), EDITED.values(), ids=EDITED)
@pytest.mark.parametrize("policy", ["latest", "all", "none"])
def test_an_edited_schedule_does_not_fire_for_the_past(
    schedule: dict[str, Any], edited: str, following: str, policy: str
) -> None:
    """Nothing counts as missed that was never due under the schedule in force, and nothing waits for the
    instant that the old one had been asleep for."""
    found = ask(schedule, edited, edited, catch_up={"policy": policy})
    assert (found.missed, times(found)[0]) == (None, following)


def test_the_newest_run_that_another_source_held_up_is_not_late() -> None:
    """A backfill ran from 00:00:30 for eight hours; without ``blocked_since`` 08:00 would be missed."""
    catch_up = {"policy": "none", "grace": 0}
    missed = ask({"cron": "0 * * * *"}, *DOWN, catch_up=catch_up)
    assert times(missed)[0] == "01-10T09:00:00"
    found = ask({"cron": "0 * * * *"}, *DOWN, catch_up=catch_up, blocked_since=utc("2026-01-10T00:00:30Z"))
    assert found.missed is not None
    assert (found.missed.count, times(found)[0]) == (7, "01-10T08:00:00")
    assert found.occurrences[0].not_after == utc("2026-01-10T08:02:00Z")


def test_a_run_that_was_due_before_the_block_is_still_late() -> None:
    found = ask(
        {"cron": "0 0 * * *"},
        "2026-01-09T12:00:00Z",
        "2026-01-10T08:00:00Z",
        catch_up={"policy": "none"},
        blocked_since=utc("2026-01-10T01:00:00Z"),
    )
    assert found.missed is not None
    assert times(found)[0] == "01-11T00:00:00"


def test_a_zone_that_vanished_is_an_error_and_not_utc() -> None:
    with pytest.raises(RuleError) as caught:
        ask({"cron": "0 9 * * *", "timezone": "US/Pacific-New"}, *DOWN)
    assert caught.value.code == "unknown_zone"


def test_a_count_that_would_take_long_is_a_lower_bound() -> None:
    """720 free minutes a day, one by one, for a year: the ends are exact, the count is not."""
    found = ask(
        {"every": "PT7S", "anchor": "2026-01-01T00:00:00Z"},
        "2026-01-01T00:00:00Z",
        "2027-01-01T00:00:00Z",
        except_=[ExceptWindow(cron="*/2 * * * *")],
    )
    assert found.missed is not None
    assert not found.missed.counted_all
    assert 0 < found.missed.count < 365 * 86_400 / 14
    assert found.missed.last > utc("2026-12-31T23:50:00Z")


OUTAGES = {
    "a second for eight hours": ({"every": "PT1S", "anchor": "2026-01-01T00:00:00Z"}, 8 * HOUR),
    "a minute for a year": ({"cron": "* * * * *", "timezone": "America/New_York"}, 365 * DAY),
    "a second for a year, but for an hour a day": (
        {"every": "PT1S", "anchor": "2026-01-01T00:00:00Z"},
        365 * DAY,
    ),
}


@pytest.mark.parametrize(("schedule", "outage"), OUTAGES.values(), ids=OUTAGES)
@pytest.mark.parametrize("policy", ["latest", "all", "none"])
def test_an_outage_is_planned_without_walking_it(
    schedule: dict[str, Any], outage: timedelta, policy: str
) -> None:
    after = utc("2026-01-01T00:00:00Z")
    except_ = [ExceptWindow(cron="* 3 * * *")] if outage > DAY else []
    request = PlanInput(
        tenant="acme",
        job="report",
        schedule=Schedule.model_validate(schedule),
        except_=except_,
        after=after,
        now=after + outage,
        catch_up=CatchUp.model_validate({"policy": policy}),
    )
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        plan(request)
        best = min(best, time.perf_counter() - start)
    assert best < 0.05


SCHEDULES = st.sampled_from(
    [
        {"cron": "*/7 * * * *", "timezone": "America/New_York"},
        {"cron": ["30 1 * * *", "*/30 2-4 * * *"], "timezone": "America/New_York", "fold": "both"},
        {"cron": "30 2 * * *", "timezone": "Europe/London", "gap": "skip"},
        {"cron": "15 */3 * * *", "timezone": "Australia/Lord_Howe"},
        {"every": "PT11M", "anchor": "2026-10-30T00:00:00Z"},
        {"every": "PT97.5S", "anchor": "2026-11-01T05:59:00Z"},
        {"at": "2026-11-01T06:00:00Z"},
    ]
)
EXCEPT = st.sampled_from(
    [
        [],
        [{"cron": "* 3 * * *"}],
        [{"from": "2026-10-31T00:00:00Z", "to": "2026-11-01T05:30:00Z"}, {"date": "2026-11-02"}],
    ]
)
AFTER = datetime(2026, 10, 30, 12, tzinfo=UTC)
UNTIL = AFTER + 4 * DAY
MINUTES = st.integers(0, 4000).map(lambda n: AFTER + n * MINUTE)


def bound(catch_up: CatchUp, fires_at: datetime, following: datetime | None, once: bool) -> datetime | None:
    """The table of docs/schedules.md, written a second time."""
    window = catch_up.window if catch_up.window is not None else (None if once else DAY)
    by_window = None if window is None else fires_at + window
    if catch_up.policy == "none":
        return fires_at + catch_up.grace
    if catch_up.policy == "all" or following is None:
        return by_window
    wanted = max(following, fires_at + catch_up.grace)
    return wanted if by_window is None else min(wanted, by_window)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    schedule=SCHEDULES,
    excluded=EXCEPT,
    policy=st.sampled_from(["latest", "all", "none"]),
    grace=st.sampled_from([0, 1, 90, 4000]),
    window=st.sampled_from([None, 60, 3600]),
    spread=st.sampled_from([None, MINUTE]),
    now=MINUTES,
    passed=st.none() | MINUTES,
    late=st.none() | MINUTES,
    remaining=st.none() | st.integers(1, 5),
    limit=st.integers(1, 20),
)
def test_a_plan_cuts_the_occurrences_into_three(
    schedule: dict[str, Any],
    excluded: list[dict[str, Any]],
    policy: str,
    grace: int,
    window: int | None,
    spread: timedelta | None,
    now: datetime,
    passed: datetime | None,
    late: datetime | None,
    remaining: int | None,
    limit: int,
) -> None:
    """Passed, missed and planned partition what follows ``after``, each by its own rule, in order."""
    catch_up = CatchUp.model_validate({"policy": policy, "grace": grace, "window": window})
    request = PlanInput(
        tenant="acme",
        job="report",
        schedule=Schedule.model_validate(schedule),
        spread=spread,
        except_=[ExceptWindow.model_validate(entry) for entry in excluded],
        catch_up=catch_up,
        ends_at=UNTIL,
        after=AFTER,
        now=now,
        passed_until=passed,
        late_until=late,
        remaining=remaining,
        limit=limit,
    )
    recurrence = compile_schedule(
        request.schedule, tenant="acme", job="report", spread=spread, ends_at=UNTIL, except_=request.except_
    )
    everything = list(recurrence.forward(AFTER))
    once = "at" in schedule
    fires = [recurrence.fires_at(instant) for instant in everything] + [None]
    expected: dict[str, list[datetime]] = {"passed": [], "missed": [], "planned": []}
    bounds = {}
    for n, instant in enumerate(everything):
        fires_at = fires[n]
        assert fires_at is not None
        bounds[instant] = bound(catch_up, fires_at, fires[n + 1], once)
        latest = bounds[instant]
        if passed is not None and fires_at <= passed:
            expected["passed"].append(instant)
        elif (latest is not None and latest < now) or (late is not None and instant <= late):
            expected["missed"].append(instant)
        else:
            expected["planned"].append(instant)
    found = plan(request)
    for name, stretch in (("passed", found.passed), ("missed", found.missed)):
        instants = expected[name]
        assert (stretch is None) == (not instants)
        if stretch is not None:
            assert (stretch.count, stretch.first, stretch.last) == (len(instants), instants[0], instants[-1])
            assert stretch.counted_all
    planned = [occurrence.scheduled_time for occurrence in found.occurrences]
    wanted = min(limit, remaining or limit)
    assert planned == expected["planned"][:wanted]
    for occurrence in found.occurrences:
        assert occurrence.fires_at == recurrence.fires_at(occurrence.scheduled_time)
        assert occurrence.not_after == bounds[occurrence.scheduled_time]
    settled = [*expected["passed"], *expected["missed"]]
    assert found.cursor == (settled[-1] if settled else AFTER)
    assert found.exhausted == (len(planned) in (len(expected["planned"]), remaining))
