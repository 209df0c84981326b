"""What a schedule becomes when it is accepted, and what is refused with which pointer."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.workflows.domain.brute_force import utc
from workflows.contracts.schedule import ExceptWindow, Schedule
from workflows.domain.errors import RuleError
from workflows.domain.recurrence import compile_schedule
from workflows.domain.resolve import initial_cursor, resolve

NOW = datetime(2026, 2, 1, 12, 0, 30, 250_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def schedule(**fields: Any) -> Schedule:
    return Schedule.model_validate(fields)


def refusal(given: Schedule, **options: Any) -> RuleError:
    with pytest.raises(RuleError) as caught:
        resolve(given, now=options.pop("now", NOW), **options)
    return caught.value


def window(start: str, end: str) -> ExceptWindow:
    return ExceptWindow.model_validate({"from": start, "to": end})


ONE_OFFS = {
    "an ambiguous time is the earlier one": (
        "2026-11-01T01:30:00",
        "America/New_York",
        "2026-11-01T05:30:00Z",
    ),
    "a missing time is the end of the gap": (
        "2026-03-08T02:30:00",
        "America/New_York",
        "2026-03-08T07:00:00Z",
    ),
    "an offset wins over the zone": ("2026-11-01T01:30:00-05:00", "America/New_York", "2026-11-01T06:30:00Z"),
    "an offset needs no zone": ("2026-11-01T01:30:00-05:00", None, "2026-11-01T06:30:00Z"),
    "a naive time of a zone": ("2026-07-31T09:00:00", "Asia/Shanghai", "2026-07-31T01:00:00Z"),
    "half an hour that happens twice": ("2026-04-05T01:45:00", "Australia/Lord_Howe", "2026-04-04T14:45:00Z"),
    "half an hour that does not exist": (
        "2026-10-04T02:10:00",
        "Australia/Lord_Howe",
        "2026-10-03T15:30:00Z",
    ),
    "midnight that does not exist": ("2026-09-06T00:00:00", "America/Santiago", "2026-09-06T04:00:00Z"),
    "a fraction is rounded up": ("2026-12-01T09:00:00.001Z", None, "2026-12-01T09:00:01Z"),
}


@pytest.mark.parametrize(("at", "timezone", "instant"), ONE_OFFS.values(), ids=ONE_OFFS)
def test_a_one_off_becomes_an_instant(at: str, timezone: str | None, instant: str) -> None:
    resolved = resolve(schedule(at=at, timezone=timezone), now=NOW, default_timezone="Asia/Tokyo")
    assert (resolved.at, resolved.timezone) == (utc(instant), timezone)
    assert resolved.at is not None
    assert resolved.at.tzinfo is UTC


def test_the_later_of_two_is_taken_when_asked_for() -> None:
    given = schedule(at="2026-11-01T01:30:00", timezone="America/New_York", fold="last")
    assert resolve(given, now=NOW).at == utc("2026-11-01T06:30:00Z")


def test_in_becomes_at() -> None:
    resolved = resolve(schedule(**{"in": "PT10M"}), now=NOW)
    assert resolved == schedule(at="2026-02-01T12:10:31Z")


def test_an_interval_is_anchored_at_its_creation_and_does_not_run_at_once() -> None:
    resolved = resolve(schedule(every="PT6H"), now=NOW)
    assert resolved.anchor == utc("2026-02-01T12:00:30Z")
    assert compile_schedule(resolved).after(initial_cursor(resolved, NOW)) == utc("2026-02-01T18:00:30Z")


def test_a_given_anchor_is_resolved_like_a_one_off() -> None:
    given = schedule(every="P7D", anchor="2019-03-26T16:00:00", timezone="Europe/Brussels")
    assert resolve(given, now=NOW).anchor == utc("2019-03-26T15:00:00Z")


def test_null_is_absent() -> None:
    given = Schedule.model_validate_json('{"cron": null, "every": "PT1H", "at": null, "in": null}')
    assert resolve(given, now=NOW).every == timedelta(hours=1)


ZONES = {
    "its own": ("Europe/Kiev", "Asia/Tokyo", "Europe/Kiev"),
    "the tenant's": (None, "Asia/Tokyo", "Asia/Tokyo"),
    "none": (None, None, None),
}


@pytest.mark.parametrize(("own", "default", "stored"), ZONES.values(), ids=ZONES)
@pytest.mark.parametrize("form", [{"cron": "0 9 * * *"}, {"every": "PT1H"}], ids=["cron", "every"])
def test_the_zone_is_stored_as_entered_or_written_in(
    form: dict[str, str], own: str | None, default: str | None, stored: str | None
) -> None:
    """A later change of the tenant's default does not move a stored job."""
    assert resolve(schedule(**form, timezone=own), now=NOW, default_timezone=default).timezone == stored


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no form": ({}, "schedule_form", "/schedule"),
    "two forms": ({"cron": "0 9 * * *", "every": "PT1H"}, "schedule_form", "/schedule"),
    "a list with a refused expression": (
        {"cron": ["0 9 * * *", "0 22-2 * * *"]},
        "cron_reversed_range",
        "/schedule/cron/1",
    ),
    "an empty list": ({"cron": []}, "cron_empty", "/schedule/cron"),
    "an unknown zone": (
        {"cron": "0 9 * * *", "timezone": "europe/london"},
        "unknown_zone",
        "/schedule/timezone",
    ),
    "an unknown zone of a one-off": (
        {"at": "2026-12-01T09:00:00Z", "timezone": "GMT+5"},
        "unknown_zone",
        "/schedule/timezone",
    ),
    "less than a second": ({"every": "PT0.9S"}, "every_too_short", "/schedule/every"),
    "zero": ({"every": "PT0S"}, "every_too_short", "/schedule/every"),
    "a naive time without a zone": ({"at": "2026-12-01T09:00:00"}, "time_without_zone", "/schedule/at"),
    "a naive anchor without a zone": (
        {"every": "PT1H", "anchor": "2026-12-01T09:00:00"},
        "time_without_zone",
        "/schedule/anchor",
    ),
    "a time that does not exist, to be skipped": (
        {"at": "2026-03-08T02:30:00", "timezone": "America/New_York", "gap": "skip"},
        "time_does_not_exist",
        "/schedule/at",
    ),
    "a time on a day that does not exist": (
        {"at": "2011-12-30T12:00:00", "timezone": "Pacific/Apia"},
        "time_does_not_exist",
        "/schedule/at",
    ),
    "61 seconds ago": ({"at": "2026-02-01T11:59:29Z"}, "at_in_the_past", "/schedule/at"),
    "last month": ({"at": "2026-01-01T11:00:00Z"}, "at_in_the_past", "/schedule/at"),
    "an anchor beside cron": (
        {"cron": "0 9 * * *", "anchor": "2026-01-01T00:00:00Z"},
        "schedule_field",
        "/schedule/anchor",
    ),
    "an anchor beside in": (
        {"in": "PT1H", "anchor": "2026-01-01T00:00:00Z"},
        "schedule_field",
        "/schedule/anchor",
    ),
    "gap beside every": ({"every": "PT1H", "gap": "skip"}, "schedule_field", "/schedule/gap"),
    "fold beside every": ({"every": "PT1H", "fold": "last"}, "schedule_field", "/schedule/fold"),
    "gap beside in": ({"in": "PT1H", "gap": "skip"}, "schedule_field", "/schedule/gap"),
    "both folds of a one-off": (
        {"at": "2026-11-01T01:30:00", "timezone": "America/New_York", "fold": "both"},
        "schedule_field",
        "/schedule/fold",
    ),
    "the year 9999": ({"at": "9999-12-31T23:59:59Z"}, "time_out_of_range", "/schedule/at"),
    "the year 1": (
        {"every": "PT1H", "anchor": "0001-01-01T00:00:00Z"},
        "time_out_of_range",
        "/schedule/anchor",
    ),
    "ten thousand years ahead": ({"in": "P3650000D"}, "time_out_of_range", "/schedule/in"),
}


@pytest.mark.parametrize(("fields", "code", "pointer"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_points_at_what_is_wrong(fields: dict[str, Any], code: str, pointer: str) -> None:
    error = refusal(schedule(**fields))
    assert (error.code, error.pointer) == (code, pointer)
    assert str(error)


@pytest.mark.parametrize("at", ["2026-02-01T11:59:31Z", "2026-02-01T12:00:30Z"])
def test_a_one_off_of_the_last_minute_is_planned(at: str) -> None:
    resolved = resolve(schedule(at=at), now=NOW)
    assert compile_schedule(resolved).after(initial_cursor(resolved, NOW)) == utc(at)


def test_every_other_job_starts_at_its_acceptance() -> None:
    for fields in ({"cron": "* * * * *"}, {"every": "PT1S"}, {"at": "2026-02-01T12:00:31Z"}):
        assert initial_cursor(resolve(schedule(**fields), now=NOW), NOW) == NOW


STORED = [
    {"cron": "0 9 * * *", "timezone": "Europe/Kiev"},
    {"cron": ["0 9 * * *", "H * * * *"]},
    {"every": "PT90S"},
    {"every": "PT90S", "anchor": "2026-01-01T00:00:00.5Z"},
    {"at": "2026-02-01T12:00:00Z"},
    {"at": "2026-03-08T02:30:00", "timezone": "America/New_York"},
    {"at": "2026-11-01T01:30:00", "timezone": "America/New_York", "fold": "last"},
    {"in": "PT10M"},
]


@pytest.mark.parametrize("fields", STORED, ids=str)
def test_a_stored_schedule_resolves_to_itself_at_any_later_time(fields: dict[str, Any]) -> None:
    """An edit that leaves the schedule alone is not refused because time has passed."""
    stored = resolve(schedule(**fields), now=NOW)
    again = Schedule.model_validate_json(stored.model_dump_json(by_alias=True))
    assert again == stored
    assert resolve(again, now=NOW + 3650 * DAY, stored=stored) == stored


def test_a_one_off_that_ran_can_be_put_again_as_it_was_written() -> None:
    given = schedule(at="2026-03-08T02:30:00", timezone="America/New_York")
    stored = resolve(given, now=NOW)
    assert resolve(given, now=NOW + 365 * DAY, stored=stored) == stored


def test_a_changed_one_off_in_the_past_is_refused() -> None:
    stored = resolve(schedule(at="2026-02-01T13:00:00Z"), now=NOW)
    moved = schedule(at="2026-02-01T14:00:00Z")
    assert refusal(moved, now=NOW + DAY, stored=stored).code == "at_in_the_past"


def test_an_interval_put_again_without_an_anchor_keeps_its_grid() -> None:
    """A deployment that puts the same definition every few minutes must not starve the job."""
    stored = resolve(schedule(every="PT6H"), now=NOW)
    assert resolve(schedule(every="PT6H"), now=NOW + DAY, stored=stored) == stored
    changed = resolve(schedule(every="PT5H"), now=NOW + DAY, stored=stored)
    assert changed.anchor == (NOW + DAY).replace(microsecond=0)


BOUNDS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "reversed": (
        {"cron": "0 9 * * *"},
        {"starts_at": NOW + DAY, "ends_at": NOW},
        "bounds_reversed",
        "/ends_at",
    ),
    "empty": (
        {"cron": "0 9 * * *"},
        {"starts_at": NOW + DAY, "ends_at": NOW + DAY},
        "bounds_reversed",
        "/ends_at",
    ),
    "over": ({"cron": "0 9 * * *"}, {"ends_at": NOW - DAY}, "no_occurrence", "/ends_at"),
    "too narrow": (
        {"cron": "0 9 1 1 *"},
        {"starts_at": NOW, "ends_at": NOW + DAY},
        "no_occurrence",
        "/ends_at",
    ),
    "before the anchor": (
        {"every": "PT1H", "anchor": "2027-01-01T00:00:00Z"},
        {"ends_at": NOW + DAY},
        "no_occurrence",
        "/ends_at",
    ),
    "a one-off before them": (
        {"at": "2026-02-02T00:00:00Z"},
        {"starts_at": NOW + 9 * DAY},
        "no_occurrence",
        "/starts_at",
    ),
    "a one-off behind them": (
        {"at": "2026-03-02T00:00:00Z"},
        {"ends_at": NOW + DAY},
        "no_occurrence",
        "/ends_at",
    ),
    "a one-off that is excepted": (
        {"at": "2026-03-02T00:00:00Z"},
        {"except_": [window("2026-03-01T00:00:00Z", "2026-03-03T00:00:00Z")]},
        "no_occurrence",
        "/except",
    ),
    "everything is excepted": (
        {"cron": "0 9 * * *", "timezone": "Europe/London"},
        {"except_": [ExceptWindow(cron="* 9 * * *")]},
        "no_occurrence",
        "/except",
    ),
    "every instant of an interval is excepted": (
        {"every": "PT1S"},
        {"except_": [ExceptWindow(cron="* * * * *")]},
        "no_occurrence",
        "/except",
    ),
    "a spread of weeks": ({"cron": "0 9 * * *"}, {"spread": 8 * DAY}, "spread_out_of_range", "/spread"),
    "an exception of no form": (
        {"cron": "0 9 * * *"},
        {"except_": [ExceptWindow(cron="* 3 * * *"), ExceptWindow()]},
        "except_form",
        "/except/1",
    ),
    "an exception of two forms": (
        {"cron": "0 9 * * *"},
        {"except_": [ExceptWindow(cron="* 3 * * *", date=date(2026, 3, 3))]},
        "except_form",
        "/except/0",
    ),
    "an exception without an end": (
        {"cron": "0 9 * * *"},
        {"except_": [ExceptWindow.model_validate({"from": "2026-03-01T00:00:00Z"})]},
        "except_window",
        "/except/0/to",
    ),
    "an exception without a beginning": (
        {"cron": "0 9 * * *"},
        {"except_": [ExceptWindow(to=NOW)]},
        "except_window",
        "/except/0/from",
    ),
    "a reversed exception": (
        {"cron": "0 9 * * *"},
        {"except_": [window("2026-03-03T00:00:00Z", "2026-03-01T00:00:00Z")]},
        "except_window",
        "/except/0/to",
    ),
    "an exception that does not parse": (
        {"cron": "0 9 * * *"},
        {"except_": [ExceptWindow(cron="0 9 * *")]},
        "cron_fields",
        "/except/0/cron",
    ),
    "too many exceptions": (
        {"cron": "0 9 * * *"},
        {"except_": [ExceptWindow(date=date(2026, 3, 3))] * 101},
        "except_too_many",
        "/except",
    ),
}


@pytest.mark.parametrize(("fields", "options", "code", "pointer"), BOUNDS.values(), ids=BOUNDS)
def test_bounds_that_leave_nothing_are_refused(
    fields: dict[str, Any], options: dict[str, Any], code: str, pointer: str
) -> None:
    error = refusal(schedule(**fields), **options)
    assert (error.code, error.pointer) == (code, pointer)


def test_a_stored_schedule_that_ended_can_still_be_edited_around() -> None:
    stored = resolve(schedule(cron="0 9 * * *"), now=NOW, ends_at=NOW + 2 * DAY)
    assert resolve(stored, now=NOW + 99 * DAY, ends_at=NOW + 2 * DAY, stored=stored) == stored
