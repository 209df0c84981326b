"""Recurrences against a slow second reading of the rules, around every kind of clock change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workflows.domain.brute_force import instants
from workflows.contracts.schedule import ExceptWindow, Schedule
from workflows.domain.recurrence import compile_schedule

SECOND = timedelta(seconds=1)
PROPERTY = settings(derandomize=True, deadline=None, max_examples=80)

# A zone and a UTC day near one of its changes.
PLACES = [
    ("America/New_York", datetime(2026, 3, 8, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 10, 25, tzinfo=UTC)),
    ("Europe/Dublin", datetime(2025, 10, 26, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2024, 4, 25, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2024, 10, 31, tzinfo=UTC)),
    ("America/Santiago", datetime(2025, 4, 6, tzinfo=UTC)),
    ("America/Santiago", datetime(2025, 9, 7, tzinfo=UTC)),
    ("America/St_Johns", datetime(2010, 11, 7, tzinfo=UTC)),
    ("America/St_Johns", datetime(2010, 3, 14, tzinfo=UTC)),
    ("America/St_Johns", datetime(1988, 4, 3, tzinfo=UTC)),  # a gap of two hours
    ("America/St_Johns", datetime(1988, 10, 30, tzinfo=UTC)),  # a fold of two hours
    ("Antarctica/Troll", datetime(2026, 3, 29, tzinfo=UTC)),  # two hours
    ("Antarctica/Troll", datetime(2026, 10, 25, tzinfo=UTC)),
    ("Antarctica/Casey", datetime(2018, 3, 10, tzinfo=UTC)),  # a fold of three hours
    ("Antarctica/Casey", datetime(2020, 10, 3, tzinfo=UTC)),
    ("Asia/Pyongyang", datetime(2018, 5, 4, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(1985, 12, 31, tzinfo=UTC)),  # fifteen minutes, at New Year
    ("America/Caracas", datetime(2016, 5, 1, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=UTC)),  # a day that does not exist
    ("Pacific/Kwajalein", datetime(1993, 8, 21, tzinfo=UTC)),
    ("Pacific/Norfolk", datetime(2015, 10, 3, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2024, 3, 10, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2024, 4, 14, tzinfo=UTC)),
    ("Asia/Tehran", datetime(2022, 3, 21, tzinfo=UTC)),
    ("Asia/Gaza", datetime(2023, 4, 29, tzinfo=UTC)),
    ("UTC", datetime(2025, 12, 31, tzinfo=UTC)),
]


def number_field(low: int, high: int, often: list[int]) -> st.SearchStrategy[str]:
    number = st.one_of(st.sampled_from(often), st.integers(low, high))
    pair = st.tuples(number, number).map(sorted)
    return st.one_of(
        st.just("*"),
        st.integers(1, 30 if high > 30 else 12).map(lambda n: f"*/{n}"),
        st.lists(number, min_size=1, max_size=3).map(lambda values: ",".join(map(str, values))),
        pair.map(lambda p: f"{p[0]}-{p[1]}"),
        st.tuples(pair, st.integers(1, 9)).map(lambda p: f"{p[0][0]}-{p[0][1]}/{p[1]}"),
    )


DAY = st.sampled_from(["*", "*", "*", "*/2", "1-15", "L", "LW", "?", "8", "29,30,31"])
WEEKDAY = st.sampled_from(["*", "*", "*", "sun", "1-6", "6-7", "0L", "fri,sun#1"])
EXPRESSION = st.tuples(
    number_field(0, 59, [0, 1, 15, 30, 45, 59]),
    number_field(0, 23, [0, 1, 2, 3, 4, 22, 23]),
    DAY,
    st.just("*"),
    WEEKDAY,
).map(" ".join)
EXPRESSIONS = st.lists(EXPRESSION, min_size=1, max_size=3)
PLACE = st.sampled_from(PLACES)
GAP = st.sampled_from(["shift", "shift", "skip"])
FOLD = st.sampled_from(["first", "last", "both"])


def window(day: datetime) -> tuple[datetime, datetime]:
    return day - timedelta(days=2), day + timedelta(days=3)


@PROPERTY
@given(EXPRESSIONS, PLACE, GAP, FOLD)
def test_forward_backward_and_counted_are_what_brute_force_finds(
    crons: list[str], place: tuple[str, datetime], gap: str, fold: str
) -> None:
    """The instants of five days, minute by minute, are those of all three ways to ask."""
    zone, day = place
    start, end = window(day)
    expected = instants(crons, zone, start, end, gap=gap, fold=fold)
    schedule = compile_schedule(Schedule(cron=crons, timezone=zone, gap=gap, fold=fold))
    assert list(schedule.forward(start - SECOND, end - SECOND)) == expected
    assert list(schedule.backward(end, start))[::-1] == expected
    assert schedule.count(start - SECOND, end - SECOND).total == len(expected)


@PROPERTY
@given(EXPRESSIONS, PLACE, GAP, FOLD, st.integers(0, 5 * 86_400 - 1), st.integers(0, 999_999))
def test_asking_from_anywhere_gives_the_neighbours(
    crons: list[str], place: tuple[str, datetime], gap: str, fold: str, seconds: int, micros: int
) -> None:
    """From any instant, gap and fold included: strictly later, strictly earlier, nothing between."""
    zone, day = place
    start, end = window(day)
    asked = start + timedelta(seconds=seconds, microseconds=micros)
    schedule = compile_schedule(Schedule(cron=crons, timezone=zone, gap=gap, fold=fold))
    expected = instants(crons, zone, start, end, gap=gap, fold=fold)
    after, before = schedule.after(asked), schedule.before(asked)
    later, earlier = [e for e in expected if e > asked], [e for e in expected if e < asked]
    if later:
        assert after == later[0]
    else:
        assert after is None or after >= end
    if earlier:
        assert before == earlier[-1]
    else:
        assert before is None or before < start
    if after is not None:
        again = schedule.before(after)
        assert again is None or again <= asked
        assert schedule.last(after) == after
    if before is not None:
        following = schedule.after(before)
        assert following is None or following >= asked


@settings(derandomize=True, deadline=None, max_examples=80)
@given(EXPRESSIONS, PLACE, st.lists(EXPRESSION, min_size=1, max_size=2), st.integers(-1, 2))
def test_what_is_excluded_is_left_out_and_nothing_else(
    crons: list[str], place: tuple[str, datetime], excluded: list[str], dated: int
) -> None:
    """Away from gaps, exclusion is set difference: by local minute on both passes, and by local date."""
    zone, day = place
    start, end = window(day)
    date = (day + timedelta(days=dated)).date()
    except_ = [*(ExceptWindow(cron=cron) for cron in excluded), ExceptWindow(date=date)]
    schedule = compile_schedule(Schedule(cron=crons, timezone=zone, gap="skip"), except_=except_)
    without = set(instants(excluded, zone, start, end, gap="skip", fold="both"))
    everything = instants(crons, zone, start, end, gap="skip")
    info = schedule.zone.info
    expected = [e for e in everything if e not in without and e.astimezone(info).date() != date]
    assert list(schedule.forward(start - SECOND, end - SECOND)) == expected
    assert list(schedule.backward(end, start))[::-1] == expected
    assert schedule.count(start - SECOND, end - SECOND).total == len(expected)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.integers(1, 5000),
    st.integers(0, 999),
    PLACE,
    st.lists(EXPRESSION, max_size=2),
    st.integers(-1, 2),
)
def test_an_interval_less_what_is_excluded(
    seconds: int, thousandths: int, place: tuple[str, datetime], excluded: list[str], dated: int
) -> None:
    """Every grid point whose local minute and date are free, rounded up to whole seconds."""
    zone, day = place
    start, end = window(day)
    end = min(end, start + timedelta(seconds=seconds * 2000))
    every = timedelta(seconds=seconds, milliseconds=thousandths)
    date = (day + timedelta(days=dated)).date()
    schedule = compile_schedule(
        Schedule(every=every, anchor=start, timezone=zone),
        except_=[*(ExceptWindow(cron=cron) for cron in excluded), ExceptWindow(date=date)],
    )
    minutes = set(instants(excluded, zone, start, end, gap="skip", fold="both"))
    expected, n = [], 0
    while (point := start + n * every) <= end - SECOND:
        n += 1
        whole = point if point.microsecond == 0 else point.replace(microsecond=0) + SECOND
        local = whole.astimezone(schedule.zone.info)
        if whole.replace(second=0) not in minutes and local.date() != date:
            expected.append(whole)
    expected = [whole for whole in expected if whole <= end - SECOND]
    assert list(schedule.forward(start - SECOND, end - SECOND)) == expected
    assert list(schedule.backward(end, start))[::-1] == expected
    counted = schedule.count(start - SECOND, end - SECOND)
    assert counted.total == len(expected) or (not counted.complete and counted.total < len(expected))
