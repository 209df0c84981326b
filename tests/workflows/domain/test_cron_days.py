"""Which days the two day fields name, alone and together."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workflows.domain.brute_force import Expression, utc
from workflows.contracts.schedule import Schedule
from workflows.domain.errors import RuleError
from workflows.domain.recurrence import Recurrence, compile_schedule

NEXT = {
    "a stepped star is a star: both must match": (
        *("0 0 */2 * 1", "2023-04-30T12:00:00Z"),
        ["2023-05-01", "2023-05-15", "2023-05-29"],
    ),
    "both restricted: either may match": (
        *("0 0 2 10 6", "2022-09-30T12:00:00Z"),
        ["2022-10-01", "2022-10-02", "2022-10-08", "2022-10-15", "2022-10-22", "2022-10-29"],
    ),
    "a stepped weekday star beside a range of days": (
        *("0 0 21-31 * */6", "2022-07-19T00:00:00Z"),
        ["2022-07-23", "2022-07-24", "2022-07-30", "2022-07-31"],
    ),
    "a question mark is a star": ("0 0 13 * ?", "2022-09-30T12:00:00Z", ["2022-10-13", "2022-11-13"]),
    "a full range is no star": ("0 0 13 * 0-6", "2022-10-12T12:00:00Z", ["2022-10-13", "2022-10-14"]),
    "a star first in a list": ("0 0 *,1 * 5", "2022-10-12T12:00:00Z", ["2022-10-14", "2022-10-21"]),
    "a star last in a list is no star": ("0 0 1,* * 5", "2022-10-12T12:00:00Z", ["2022-10-13", "2022-10-14"]),
    "a range that ends in seven": (
        *("0 0 * * 6-7", "2020-05-07T20:55:58Z"),
        ["2020-05-09", "2020-05-10", "2020-05-16", "2020-05-17"],
    ),
    "an impossible day beside a weekday still runs": (
        *("0 0 31 4 1", "2025-01-01T00:00:00Z"),
        ["2025-04-07", "2025-04-14", "2025-04-21", "2025-04-28", "2026-04-06"],
    ),
    "leap day asked on the leap day": ("0 0 29 2 *", "2016-02-29T00:00:00Z", ["2020-02-29", "2024-02-29"]),
    "leap days skip 2100": ("0 0 29 2 *", "2096-02-29T00:00:00Z", ["2104-02-29"]),
    "the fifth Monday of February, forty years on": ("0 0 * 2 MON#5", "2073-01-01T00:00:00Z", ["2112-02-29"]),
    "the fifth Monday of February, from 2017": (
        "0 0 * 2 MON#5",
        "2017-01-01T00:00:00Z",
        ["2044-02-29", "2072-02-29"],
    ),
    "nearest weekday of a Saturday": ("0 0 15W * *", "2024-05-15T12:00:00Z", ["2024-06-14"]),
    "nearest weekday stays in the month at its start": ("0 0 1W * *", "2025-01-31T00:00:00Z", ["2025-02-03"]),
    "nearest weekday stays in the month at its end": ("0 0 31W * *", "2024-03-15T00:00:00Z", ["2024-03-29"]),
    "a month without the day has no nearest weekday": ("0 0 31W * *", "2024-03-30T00:00:00Z", ["2024-05-31"]),
    "last day": ("0 0 L * *", "2024-01-31T12:00:00Z", ["2024-02-29", "2024-03-31"]),
    "three days before the last": ("0 0 L-3 * *", "2024-01-31T12:00:00Z", ["2024-02-26", "2024-03-28"]),
    "months too short for L-30": ("0 0 L-30 * *", "2024-01-31T12:00:00Z", ["2024-03-01", "2024-05-01"]),
    "last Monday-to-Friday day": ("0 0 LW * *", "2024-03-01T12:00:00Z", ["2024-03-29", "2024-04-30"]),
    "last Friday": ("0 0 * * 5L", "2024-03-01T12:00:00Z", ["2024-03-29", "2024-04-26"]),
    "nth and last in one list": (
        *("0 0 * * fri#2,monL", "2024-03-01T12:00:00Z"),
        ["2024-03-08", "2024-03-25", "2024-04-12"],
    ),
    "last day or Friday": ("0 0 L * 5", "2024-03-22T12:00:00Z", ["2024-03-29", "2024-03-31", "2024-04-05"]),
}


@pytest.mark.parametrize(("cron", "after", "days"), NEXT.values(), ids=NEXT)
def test_next_days(cron: str, after: str, days: list[str]) -> None:
    recurrence, instant = compile_schedule(Schedule(cron=cron)), utc(after)
    for day in days:
        found = recurrence.after(instant)
        assert found == utc(f"{day}T00:00:00Z")
        instant = found


def accepted(text: str) -> Recurrence | None:
    """None: refused as never running, the only refusal that is expected here."""
    try:
        return compile_schedule(Schedule(cron=text))
    except RuleError as error:
        if error.code != "cron_never":
            raise
        return None


def weekday_item() -> st.SearchStrategy[str]:
    number = st.integers(0, 7)
    return st.one_of(
        number.map(str),
        st.sampled_from(["mon", "fri", "sun", "mon-fri", "6-7", "0-7", "1-5/2", "2/2"]),
        number.map(lambda n: f"{n}L"),
        st.tuples(number, st.integers(1, 5)).map(lambda p: f"{p[0]}#{p[1]}"),
    )


DAY_FIELD = st.one_of(
    st.just("*"),
    st.just("?"),
    st.integers(1, 31).map(lambda n: f"*/{n}"),
    st.lists(st.integers(1, 31).map(str), min_size=1, max_size=3).map(",".join),
    st.tuples(st.integers(1, 15), st.integers(15, 31)).map(lambda p: f"{p[0]}-{p[1]}"),
    st.just("L"),
    st.just("LW"),
    st.integers(0, 30).map(lambda n: f"L-{n}"),
    st.integers(1, 31).map(lambda n: f"{n}W"),
)
WEEKDAY_FIELD = st.one_of(
    st.just("*"),
    st.just("?"),
    st.integers(1, 7).map(lambda n: f"*/{n}"),
    st.lists(weekday_item(), min_size=1, max_size=3).map(",".join),
)
MONTH_FIELD = st.one_of(st.just("*"), st.sampled_from(["2", "feb-apr", "*/3", "4,6,9,11", "1,12"]))
DAYS = [date(2023, 1, 1) + timedelta(days=n) for n in range(2 * 366)]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(DAY_FIELD, MONTH_FIELD, WEEKDAY_FIELD)
def test_days_agree_with_a_walk_over_the_calendar(day: str, month: str, weekday: str) -> None:
    """Two years, one of them a leap year, day by day; a refusal means that no day is ever named."""
    text = f"0 0 {day} {month} {weekday}"
    expression = Expression(text)
    named = [d for d in DAYS if expression.on(d)]
    recurrence = accepted(text)
    if recurrence is None:
        assert not named
        return
    start = datetime(2022, 12, 31, 12, tzinfo=UTC)
    until = datetime(DAYS[-1].year, DAYS[-1].month, DAYS[-1].day, 12, tzinfo=UTC)
    assert [instant.date() for instant in recurrence.forward(start, until)] == named
    assert [instant.date() for instant in recurrence.backward(until, start)] == named[::-1]
    assert recurrence.count(start, until).total == len(named)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(DAY_FIELD, MONTH_FIELD, WEEKDAY_FIELD)
def test_what_is_accepted_runs_within_the_gregorian_cycle(day: str, month: str, weekday: str) -> None:
    """An accepted expression has a next occurrence from anywhere."""
    recurrence = accepted(f"0 0 {day} {month} {weekday}")
    for year in (1971, 2026, 2097):
        assert recurrence is None or recurrence.after(datetime(year, 3, 1, tzinfo=UTC)) is not None
