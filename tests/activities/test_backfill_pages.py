"""Pages of a backfill: which occurrences, with which attempt, and where the next page begins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.backfill import CHUNK, Backfills
from infra.database.executions import ToldOutcome
from workflows.contracts.backfill import PageAsked, Timing
from workflows.contracts.names import scheduled_key
from workflows.contracts.records import Outcome, attempt_after, sequence
from workflows.contracts.schedule import ExceptWindow, Schedule

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
EACH_MINUTE = Timing(schedule=Schedule(every=timedelta(minutes=1), anchor=NOON - timedelta(days=30)))


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


class Known:
    """A history that was told these: minute, suffix of the key, outcome, attempt."""

    def __init__(self, *rows: tuple[float, str, Outcome, int]) -> None:
        self.rows = rows

    async def outcomes(
        self, tenant: str, ref: str, first: datetime, last: datetime, *, succeeded: bool = False
    ) -> list[ToldOutcome]:
        return [
            ToldOutcome(scheduled_key(tenant, ref, at(minute)) + suffix, outcome, sequence(attempt, 1, 5))
            for minute, suffix, outcome, attempt in self.rows
            if first <= at(minute) <= last
        ]


def asked(**fields: Any) -> PageAsked:
    return PageAsked.model_validate(
        {
            "tenant": "acme", "job": "report", "ref": "report", "timing": EACH_MINUTE, "from_": at(0),
            "to": at(5), "settled": at(60), "only": "missing", "limit": 50, **fields,
        }
    )  # fmt: skip


def minutes(instants: Sequence[datetime]) -> list[float]:
    return [(one - NOON) / timedelta(minutes=1) for one in instants]


@pytest.mark.parametrize(
    ("fields", "found", "cursor", "last"),
    [
        pytest.param({}, [0, 1, 2, 3, 4], 5, True, id="from-is-in-to-is-not"),
        pytest.param({"from_": at(0.5), "to": at(2.5)}, [1, 2], 2.5, True, id="between-occurrences"),
        pytest.param({"limit": 2}, [0, 1], 2, False, id="a-full-page"),
        pytest.param({"limit": 5}, [0, 1, 2, 3, 4], 5, True, id="full-and-the-last"),
        pytest.param({"settled": at(2)}, [0, 1, 2], 3, False, id="up-to-what-is-settled"),
        pytest.param({"settled": at(-1)}, [], 0, False, id="nothing-is-settled-yet"),
        pytest.param({"settled": at(4)}, [0, 1, 2, 3, 4], 5, True, id="all-of-it-is-settled"),
        pytest.param({"from_": at(0.2), "to": at(0.8), "settled": at(0)}, [], 0.8, True, id="no-occurrence"),
        pytest.param({"timing": Timing(schedule=Schedule(at=at(3)))}, [3], 5, True, id="a-one-off"),
        pytest.param(
            {"timing": EACH_MINUTE.model_copy(update={"ends_at": at(1)})}, [0, 1], 5, True, id="bounds"
        ),
        pytest.param(
            {"timing": EACH_MINUTE.model_copy(update={"except_": [ExceptWindow(from_=at(1), to=at(4))]})},
            [0, 4], 5, True, id="what-is-excluded",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("only", ["missing", "all"])
async def test_a_page(
    fields: dict[str, Any], found: list[float], cursor: float, last: bool, only: str
) -> None:
    page = await Backfills(Known()).page(asked(**fields, only=only))
    assert minutes([one.at for one in page.occurrences]) == found
    assert (minutes([page.cursor]), page.last) == ([cursor], last)
    assert {one.attempt for one in page.occurrences} <= {1}


async def test_missing_is_what_has_no_success_under_any_key() -> None:
    history = Known(
        (0, "", "succeeded", 2), (1, "+r1", "succeeded", 1), (1, "", "dead_lettered", 5),
        (2, "+b3+r12", "succeeded", 1), (3, "+b1", "dead_lettered", 3), (4, "", "dead_lettered", 5),
    )  # fmt: skip
    page = await Backfills(history).page(asked())
    assert [(minutes([one.at]), one.attempt) for one in page.occurrences] == [([3], 1), ([4], 6)]
    everything = await Backfills(history).page(asked(only="all"))
    assert [one.attempt for one in everything.occurrences] == [1] * 5


async def test_a_long_stretch_of_successes_is_gone_through_in_bounded_pages() -> None:
    successes: list[tuple[float, str, Outcome, int]] = [(n, "", "succeeded", 1) for n in range(25 * CHUNK)]
    history, cursor, pages, found = Known(*successes), at(0), 0, []
    while True:
        page = await Backfills(history).page(asked(from_=cursor, to=at(25 * CHUNK + 3), settled=at(10**6)))
        pages, cursor = pages + 1, page.cursor
        found += minutes([one.at for one in page.occurrences])
        if page.last:
            break
    assert (pages, found) == (2, [25 * CHUNK, 25 * CHUNK + 1, 25 * CHUNK + 2])


async def test_a_schedule_that_cannot_be_read_is_not_tried_again() -> None:
    broken = Timing(schedule=Schedule(cron="0 9 * * *", timezone="Nowhere/Town"))
    with pytest.raises(ApplicationError) as failed:
        await Backfills(Known()).page(asked(timing=broken))
    assert failed.value.non_retryable


@pytest.mark.parametrize(
    ("seq", "attempt"),
    [
        pytest.param(sequence(1, 1, 1), 2, id="running"),
        pytest.param(sequence(5, 2, 5), 6, id="ended"),
        pytest.param(sequence(1, 0, 9), 1, id="cancelled-before-it-was-sent"),
        pytest.param(sequence(2, 0, 9), 2, id="ended-while-it-waited-for-a-retry"),
        pytest.param(sequence(0, 0, 9), 1, id="a-stretch"),
    ],
)
def test_an_execution_id_is_never_used_again(seq: int, attempt: int) -> None:
    assert attempt_after(seq) == attempt
    assert sequence(attempt, 1, 1) > seq, "and what is written of it is news"
