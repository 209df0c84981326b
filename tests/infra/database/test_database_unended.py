"""No attempt is stored as running in an execution that has ended."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from infra.database import Database, History
from infra.database.schema import attempts
from tests.infra.database.samples import NOON, attempt, execution, record
from workflows.contracts.names import scheduled_key
from workflows.contracts.records import FINAL_PHASE, FIRED_PHASE, Record, sequence

SECOND = timedelta(seconds=1)


async def stored(database: Database, tenant: str) -> list[tuple[int, str, datetime | None]]:
    """The rows themselves, as a dashboard reads them: attempt, outcome, end."""
    query = (
        sa.select(attempts.c.attempt, attempts.c.outcome, attempts.c.ended_at)
        .where(attempts.c.tenant == tenant)
        .order_by(attempts.c.attempt)
    )
    rows = await database.read(lambda connection: connection.execute(query).all())
    return [(row.attempt, row.outcome, row.ended_at) for row in rows]


def fired(tenant: str, number: int = 1, delivery: int = 1) -> Record:
    """The one word of a holder that is stopped between two leases."""
    seq, key = sequence(number, delivery, FIRED_PHASE), scheduled_key(tenant, "report", NOON)
    return record(
        tenant,
        execution=execution(tenant, outcome="running", seq=seq),
        attempt=attempt(key, number, outcome="running", delivery=delivery, seq=seq),
    )


def failed(tenant: str, number: int, outcome: str = "retrying", seconds: int = 1) -> Record:
    seq, key, ended = sequence(number, 1, 5), scheduled_key(tenant, "report", NOON), NOON + seconds * SECOND
    return record(
        tenant,
        execution=execution(
            tenant, outcome=outcome, seq=seq, ended_at=None if outcome == "retrying" else ended
        ),
        attempt=attempt(key, number, outcome="failed", seq=seq, ended_at=ended),
    )


def settled(tenant: str, outcome: str, number: int = 1, seconds: int = 9) -> Record:
    """The workflow's own word on the end, which tells nothing of attempts."""
    row = execution(
        tenant,
        outcome=outcome,
        seq=sequence(number, 999, FINAL_PHASE),
        ended_at=NOON + seconds * SECOND,
    )
    return record(tenant, execution=row)


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "one by one"])
@pytest.mark.parametrize(
    ("outcome", "left"),
    [("cancelled", "cancelled"), ("replaced", "cancelled"), ("dead_lettered", "failed")],
)
async def test_the_end_of_an_execution_ends_what_its_attempts_left_open(
    database: Database, history: History, tenant: str, outcome: str, left: str, together: bool
) -> None:
    """In whatever order both are stored: the word on the firing is offered, and may come last."""
    words = [fired(tenant), failed(tenant, 1), fired(tenant, 2), settled(tenant, outcome, 2)]
    for number, order in enumerate(itertools.permutations(words)):
        mine = f"{tenant}-{number}"
        renamed = [Record.model_validate_json(one.model_dump_json().replace(tenant, mine)) for one in order]
        for batch in [renamed] if together else [[one] for one in renamed]:
            await history.write(batch)
        assert await stored(database, mine) == [
            (1, "failed", NOON + SECOND), (2, left, NOON + 9 * SECOND),
        ]  # fmt: skip


async def test_an_attempt_of_an_execution_that_is_alive_stays_open(
    database: Database, history: History, tenant: str
) -> None:
    await history.write([fired(tenant)])
    await history.write([failed(tenant, 1), fired(tenant, 2)])
    assert [outcome for _, outcome, _ in await stored(database, tenant)] == ["failed", "running"]


async def test_a_better_word_on_the_attempt_still_counts(
    database: Database, history: History, tenant: str
) -> None:
    """Its report may come behind the end of the execution, which was settled without it."""
    await history.write([fired(tenant), settled(tenant, "dead_lettered")])
    assert await stored(database, tenant) == [(1, "failed", NOON + 9 * SECOND)]
    await history.write([failed(tenant, 1)])
    assert await stored(database, tenant) == [(1, "failed", NOON + SECOND)]


async def test_a_redrive_leaves_no_attempt_open_either(
    database: Database, history: History, tenant: str
) -> None:
    """Neither while it runs, nor when it is over; others' rows are left alone."""
    other: dict[str, Any] = {"tenant": f"{tenant}-other"}
    await history.write([fired(**other)])
    await history.write([fired(tenant), settled(tenant, "dead_lettered")])
    await history.write([fired(tenant, 2)])
    assert [outcome for _, outcome, _ in await stored(database, tenant)] == ["failed", "running"]
    await history.write([settled(tenant, "cancelled", 2, seconds=20)])
    assert [outcome for _, outcome, _ in await stored(database, tenant)] == ["failed", "cancelled"]
    assert [outcome for _, outcome, _ in await stored(database, other["tenant"])] == ["running"]


async def test_a_redrive_days_later_rewrites_nothing_of_what_was_before(
    database: Database, history: History, tenant: str
) -> None:
    key, began = scheduled_key(tenant, "report", NOON), NOON + timedelta(days=3)
    await history.write([fired(tenant), settled(tenant, "cancelled")])
    for phase, outcome in (FIRED_PHASE, "running"), (5, "succeeded"):
        seq, ended = sequence(2, 1, phase), began + SECOND if phase == 5 else None
        rows: dict[str, Any] = {"outcome": outcome, "seq": seq, "ended_at": ended}
        row = attempt(key, 2, started_at=began, **rows)
        await history.write([record(tenant, execution=execution(tenant, **rows), attempt=row)])
    assert await stored(database, tenant) == [
        (1, "cancelled", NOON + 9 * SECOND), (2, "succeeded", began + SECOND),
    ]  # fmt: skip
