"""What a preview shows: words, class, local times, and why a clock change concerns an occurrence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.workflows.domain.brute_force import utc
from workflows.contracts.schedule import ExceptWindow, Schedule
from workflows.domain.errors import RuleError
from workflows.domain.preview import Preview, preview

NOW = datetime(2026, 3, 7, 12, 0, 30, tzinfo=UTC)


def show(from_: str | None = None, count: int = 2, **fields: Any) -> Preview:
    return preview(
        Schedule.model_validate(fields),
        now=NOW,
        from_=None if from_ is None else utc(from_),
        count=count,
        tenant="acme",
        job="report",
    )


DESCRIBED: dict[str, tuple[dict[str, Any], str]] = {
    "weekdays": (
        {"cron": "0 9 * * mon-fri", "timezone": "Europe/London"},
        "At 09:00, on Monday to Friday (Europe/London)",
    ),
    "every minute": ({"cron": "* * * * *"}, "Every minute, every day (UTC)"),
    "hourly": ({"cron": "@hourly"}, "Every hour, on the hour, every day (UTC)"),
    "every fifteen minutes": ({"cron": "*/15 * * * *"}, "Every 15 minutes, every day (UTC)"),
    "uneven steps": (
        {"cron": "*/25 * * * *"},
        "At minutes 0, 25 and 50 of every hour, every day (UTC)",
    ),
    "minutes of some hours": (
        {"cron": "* 9-17 * * *"},
        "Every minute of the hours 09 to 17, every day (UTC)",
    ),
    "every other hour": ({"cron": "5 */2 * * *"}, "At minute 5 of every 2nd hour, every day (UTC)"),
    "both days": (
        {"cron": "0 0 1,15 * fri"},
        "At 00:00, on days 1 and 15 of the month and also on Friday (UTC)",
    ),
    "days that must meet": (
        {"cron": "0 0 1-7 * */7"},
        "At 00:00, on days 1 to 7 of the month, but only on Sunday (UTC)",
    ),
    "a union with every day": ({"cron": "0 0 1-31 * fri"}, "At 00:00, every day (UTC)"),
    "the last day": ({"cron": "0 0 L * *"}, "At 00:00, on the last day of the month (UTC)"),
    "days before the last": (
        {"cron": "0 0 L-3 * *"},
        "At 00:00, 3 days before the last day of the month (UTC)",
    ),
    "the last workday": (
        {"cron": "0 0 LW * *"},
        "At 00:00, on the last Monday-to-Friday day of the month (UTC)",
    ),
    "the nearest workday": (
        {"cron": "0 0 15W * *"},
        "At 00:00, on the Monday-to-Friday day nearest to day 15 of the month (UTC)",
    ),
    "nth and last weekdays": (
        {"cron": "0 0 * 3 fri#2,monL"},
        "At 00:00, on the second Friday of the month and the last Monday of the month, in March (UTC)",
    ),
    "a list": (
        {"cron": ["0 9 * * *", "30 17 * * *"]},
        "At 09:00, every day; and at 17:30, every day (UTC)",
    ),
    "an interval": (
        {"every": "PT1H30M", "anchor": "2026-03-01T00:00:00Z"},
        "Every 1 hour and 30 minutes of elapsed time, counted from 2026-03-01 00:00:00 UTC",
    ),
    "a one-off": (
        {"at": "2026-12-01T09:00:00", "timezone": "Europe/Paris"},
        "Once, on 2026-12-01 at 09:00:00 (Europe/Paris)",
    ),
    "H resolved": ({"cron": "H H * * *"}, "At 04:12, every day (UTC)"),
}


@pytest.mark.parametrize(("fields", "words"), DESCRIBED.values(), ids=DESCRIBED)
def test_a_schedule_in_words(fields: dict[str, Any], words: str) -> None:
    assert show(**fields).description == words


NEW_YORK = {"timezone": "America/New_York"}
SPRING, AUTUMN = "2026-03-07T12:00:00Z", "2026-11-01T05:00:00Z"
NOTED: dict[str, tuple[dict[str, Any], str, list[tuple[str, str | None]]]] = {
    "a moved run": (
        {"cron": "30 2 * * *"},
        SPRING,
        [("2026-03-08T03:00:00-04:00", "02:30 does not exist"), ("2026-03-09T02:30:00-04:00", None)],
    ),
    "a moved run that meets a regular one": (
        {"cron": "0 2,3 * * *"},
        SPRING,
        [("2026-03-08T03:00:00-04:00", "together with the regular one"), ("2026-03-09T02:00:00-04:00", None)],
    ),
    "a skipped run is told at the next": (
        {"cron": "30 2 * * *", "gap": "skip"},
        SPRING,
        [("2026-03-09T02:30:00-04:00", "left out, since gap is 'skip'"), ("2026-03-10T02:30:00-04:00", None)],
    ),
    "a wildcard through a gap": (
        {"cron": "0 * * * *"},
        "2026-03-08T06:00:00Z",
        [("2026-03-08T03:00:00-04:00", "follows elapsed time"), ("2026-03-08T04:00:00-04:00", None)],
    ),
    "a wildcard whose date was lost": (
        {"cron": "*/30 2 * * *"},
        SPRING,
        [
            ("2026-03-08T03:00:00-04:00", "02:00 and 02:30 do not exist"),
            ("2026-03-09T02:00:00-04:00", None),
        ],
    ),
    "a wildcard whose date was lost and skipped": (
        {"cron": "*/30 2 * * *", "gap": "skip"},
        SPRING,
        [("2026-03-09T02:00:00-04:00", "gap is 'skip'"), ("2026-03-09T02:30:00-04:00", None)],
    ),
    "the first of two": (
        {"cron": "30 1 * * *"},
        AUTUMN,
        [
            ("2026-11-01T01:30:00-04:00", "runs once, this is the first time"),
            ("2026-11-02T01:30:00-05:00", None),
        ],
    ),
    "the last of two": (
        {"cron": "30 1 * * *", "fold": "last"},
        AUTUMN,
        [
            ("2026-11-01T01:30:00-05:00", "runs once, this is the second time"),
            ("2026-11-02T01:30:00-05:00", None),
        ],
    ),
    "both of two": (
        {"cron": "30 * * * *"},
        AUTUMN,
        [
            ("2026-11-01T01:30:00-04:00", "runs both times, this is the first time"),
            ("2026-11-01T01:30:00-05:00", "runs both times, this is the second time"),
        ],
    ),
    "a skipped date": (
        {"cron": "0 12 * * *", "timezone": "Pacific/Apia"},
        "2011-12-29T23:00:00Z",
        [
            ("2011-12-31T12:00:00+14:00", "more than three hours is not made up"),
            ("2012-01-01T12:00:00+14:00", None),
        ],
    ),
}


@pytest.mark.parametrize(("fields", "from_", "expected"), NOTED.values(), ids=NOTED)
def test_a_clock_change_is_noted(
    fields: dict[str, Any], from_: str, expected: list[tuple[str, str | None]]
) -> None:
    found = show(from_, **{**NEW_YORK, **fields}).occurrences
    assert [occurrence.local for occurrence in found] == [local for local, _ in expected]
    for occurrence, (_, says) in zip(found, expected, strict=True):
        assert (occurrence.note is None) == (says is None)
        assert says is None or says in (occurrence.note or "")


def test_an_excluded_end_of_a_gap_is_noted_at_the_next() -> None:
    found = preview(
        Schedule(cron="30 2 * * *", timezone="America/New_York"),
        now=NOW,
        count=1,
        except_=[ExceptWindow(cron="* 3 * * *")],
    )
    assert "the first instant after the gap is excluded" in (found.occurrences[0].note or "")


def test_a_missing_one_off_is_shown_where_it_runs() -> None:
    found = show(at="2026-03-08T02:30:00", timezone="America/New_York")
    assert [occurrence.local for occurrence in found.occurrences] == ["2026-03-08T03:00:00-04:00"]
    assert found.kind == "once"


def test_an_interval_without_an_anchor_starts_where_the_preview_does() -> None:
    found = show("2026-01-01T00:00:00Z", every="PT1H")
    assert [occurrence.scheduled_time for occurrence in found.occurrences] == [
        utc("2026-01-01T01:00:00Z"),
        utc("2026-01-01T02:00:00Z"),
    ]


def test_spread_moves_the_firing_and_not_the_time() -> None:
    found = preview(
        Schedule(cron="0 9 * * *"), now=NOW, count=1, tenant="acme", job="report", spread=timedelta(minutes=1)
    )
    shown = found.occurrences[0]
    assert (shown.scheduled_time, shown.fires_at) == (
        utc("2026-03-08T09:00:00Z"),
        utc("2026-03-08T09:00:24Z"),
    )


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"cron": "0 22-2 * * *"}, "/schedule/cron"),
        ({"at": "2026-03-07T11:00:00Z"}, "/schedule/at"),
        ({"cron": "0 9 * * *", "timezone": "Mars/Phobos"}, "/schedule/timezone"),
    ],
)
def test_the_verdict_is_that_of_a_creation(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(RuleError) as caught:
        show(**fields)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("count", [0, 101, -1])
def test_a_preview_is_bounded(count: int) -> None:
    with pytest.raises(RuleError) as caught:
        show(cron="* * * * *", count=count)
    assert caught.value.pointer == "/count"
