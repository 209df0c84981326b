"""The index of dead letters: the newest word stands, those that are open are listed, in both databases."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from infra.database import BadCursor, Database
from infra.database.dead_letters import CLOSED_KEPT, DeadLetters
from tests.infra.database.samples import NOON, NOW
from workflows.contracts.dead_letter import LetterRow
from workflows.contracts.names import parse_key, scheduled_key

HOUR = timedelta(hours=1)


@pytest.fixture
def letters(database: Database) -> DeadLetters:
    return DeadLetters(database)


def row(tenant: str, at: datetime = NOON, *, job: str = "report", **fields: Any) -> LetterRow:
    known = {
        "key": scheduled_key(tenant, job, at),
        "ref": job,
        "job": job,
        "scheduled_time": at,
        "trigger": "schedule",
        "opened_at": NOW,
        "failed_at": NOW,
        "expires_at": NOW + HOUR,
        "reason": "max_attempts",
        "attempts": 2,
        "status_code": 500,
        "error": "said \x00 no",
        "status": "open",
        "change": 1,
        "changed_at": NOW,
    }
    return LetterRow.model_validate({"tenant": tenant, **known, **fields})


async def keys(letters: DeadLetters, tenant: str, *, limit: int = 50, **filters: Any) -> list[str]:
    """What names each letter behind the ref, over all pages."""
    found: list[str] = []
    cursor = None
    while True:
        page = await letters.list(tenant, limit=limit, cursor=cursor, **filters)
        found += [parse_key(one.key)[2] for one in page.items]
        if (cursor := page.next_cursor) is None:
            return found


async def test_a_letter_is_read_back_and_a_newer_word_stands(letters: DeadLetters, tenant: str) -> None:
    """In any order and twice: by the opening, then by the change."""
    first = row(tenant)
    failed = row(tenant, change=3, attempts=4, failed_at=NOW + HOUR)
    for written in (failed, first, failed):
        await letters.write(written)
    stored = await letters.get(tenant, first.key)
    assert stored == failed.model_copy(update={"error": "said  no"})
    await letters.write(row(tenant, change=4, status="discarded"))
    assert (await letters.list(tenant)).items == []
    again = row(tenant, opened_at=NOW + 2 * HOUR)
    await letters.write(again)
    assert [one.opened_at for one in (await letters.list(tenant)).items] == [again.opened_at]
    assert (await letters.list(f"{tenant}-other")).items == []


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({}, [3, 2, 1, 0]),
        ({"since": NOON + HOUR}, [3, 2, 1]),
        ({"until": NOON + HOUR}, [0]),
        ({"job": "report", "since": NOON + HOUR, "until": NOON + 3 * HOUR}, [2]),
        ({"job": "other"}, [3, 1]),
        ({"opened_until": NOW}, [2, 0]),
    ],
    ids=["all", "since", "until", "of a job between", "of another job", "opened until"],
)
async def test_what_is_open_is_listed_by_its_filters_newest_first(
    letters: DeadLetters, tenant: str, filters: dict[str, Any], wanted: list[int]
) -> None:
    """``redriving`` ones too; what is counted is what is listed."""
    for hour in range(4):
        odd = hour % 2
        await letters.write(
            row(
                tenant,
                NOON + hour * HOUR,
                job="other" if odd else "report",
                opened_at=NOW + odd * HOUR,
                status="redriving" if odd else "open",
            )
        )
    await letters.write(row(tenant, NOON + 9 * HOUR, status="expired"))
    found = await keys(letters, tenant, **filters)
    assert found == [parse_key(scheduled_key(tenant, "x", NOON + hour * HOUR))[2] for hour in wanted]
    assert await letters.count(tenant, **filters) == len(wanted)


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_pages_neither_double_nor_hide_what_others_close_meanwhile(
    letters: DeadLetters, tenant: str, limit: int
) -> None:
    """Two jobs with equal instants; after each page its letters are closed, as a bulk redrive does it."""
    for hour in range(5):
        for job in ("a", "b"):
            await letters.write(row(tenant, NOON + hour * HOUR, job=job))
    seen: list[str] = []
    cursor = None
    while True:
        page = await letters.list(tenant, limit=limit, cursor=cursor)
        seen += [one.key for one in page.items]
        for one in page.items:
            await letters.write(one.model_copy(update={"status": "redriven", "change": 2}))
        if (cursor := page.next_cursor) is None:
            break
    assert len(seen) == len(set(seen)) == 10
    with pytest.raises(BadCursor):
        await letters.list(tenant, cursor="nonsense")


async def test_those_beyond_the_bound_are_the_ones_opened_first(letters: DeadLetters, tenant: str) -> None:
    for hour in range(5):
        await letters.write(row(tenant, NOON - hour * HOUR, opened_at=NOW + hour * HOUR))
    await letters.write(row(tenant, NOON - 7 * HOUR, opened_at=NOW - HOUR, status="expired"))
    assert [one.opened_at for one in await letters.beyond(tenant, 3, limit=9)] == [NOW + HOUR, NOW]
    assert len(await letters.beyond(tenant, 3, limit=1)) == 1
    assert await letters.beyond(tenant, 5, limit=9) == []


async def test_closed_ones_are_forgotten_after_the_history(letters: DeadLetters, tenant: str) -> None:
    old = row(tenant, status="expired")
    alive = row(tenant, NOON + HOUR)
    for one in (old, alive):
        await letters.write(one)
    later = NOW + CLOSED_KEPT + HOUR
    await letters.write(row(tenant, NOON + 2 * HOUR, status="discarded", changed_at=later))
    assert await letters.get(tenant, old.key) is None
    assert await letters.get(tenant, alive.key) is not None
