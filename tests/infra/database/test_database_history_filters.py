"""The history narrowed by job, labels and target: what the list of jobs finds by them, too."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from infra.database import History, JobIndex
from tests.infra.database.samples import NOON, create, definition, execution, job_row, record

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def filled(index: JobIndex, history: History, tenant: str) -> None:
    """Two jobs, one of them in its second generation, and one that is deleted; two runs of each."""
    billing = definition(labels={"team": "billing", "tier": "1"}, url="https://pay.example/hook")
    mail = definition(labels={"team": "mail"}, url="https://mail.example/50%_off")
    first = await create(index, tenant, "again", definition=mail)
    await index.apply(tenant, job_row("again", change=2, status="deleted", definition=mail))
    second = await create(index, tenant, "again", definition=billing)
    gone = await create(index, tenant, "gone", definition=mail)
    await index.apply(tenant, job_row("gone", change=2, status="deleted", definition=mail))
    other = await create(index, tenant, "other", definition=billing)
    entries = []
    for number, stored in enumerate((first, second, gone, other)):
        for run in (0, 1):
            row = execution(tenant, stored.ref, NOON + MINUTE * (2 * number + run))
            entries.append(record(tenant, stored.ref, execution=row))
    await history.write(entries)


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, ["other", "other", "gone", "gone", "again~2", "again~2", "again", "again"]),
    "job": ({"job": "other"}, ["other", "other"]),
    "job of two generations": ({"job": "again"}, ["again~2", "again~2", "again", "again"]),
    "deleted job": ({"job": "gone"}, ["gone", "gone"]),
    "no such job": ({"job": "nobody"}, []),
    "a ref is no job": ({"job": "again~2"}, []),
    "label": ({"labels": {"team": "mail"}}, ["gone", "gone", "again", "again"]),
    "two labels": ({"labels": {"team": "billing", "tier": "1"}}, ["other", "other", "again~2", "again~2"]),
    "two labels, one wrong": ({"labels": {"team": "mail", "tier": "1"}}, []),
    "part of a label": ({"labels": {"team": "mai"}}, []),
    "target": ({"target": "pay.example"}, ["other", "other", "again~2", "again~2"]),
    "kind of target": ({"target": "http", "job": "gone"}, ["gone", "gone"]),
    "no wildcards": ({"target": "50%_"}, ["gone", "gone", "again", "again"]),
    "wildcards are letters": ({"target": "mail%off"}, []),
    "job and label": ({"job": "again", "labels": {"team": "mail"}}, ["again", "again"]),
}


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(("filters", "wanted"), FILTERS.values(), ids=FILTERS.keys())
async def test_executions_by_what_their_job_is(
    history: History, tenant: str, filters: dict[str, Any], wanted: list[str]
) -> None:
    for limit in (1, 3, 50):
        found: list[str] = []
        cursor = None
        while True:
            page = await history.list_executions(tenant, limit=limit, cursor=cursor, **filters)
            found += [told.ref for told in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == wanted


async def test_outcomes_of_occurrences_whatever_ran_them(history: History, tenant: str) -> None:
    """What a backfill asks: within two instants, of one generation, without manual runs."""
    rows = [
        execution(tenant, at=NOON),
        execution(tenant, at=NOON + MINUTE, outcome="dead_lettered", seq=50_015),
        execution(tenant, at=NOON + MINUTE, key=f"{tenant}/report:x+r1", trigger="rerun"),
        execution(tenant, at=NOON + MINUTE, key=f"{tenant}/report:manual-1", trigger="manual"),
        execution(tenant, at=NOON + 2 * MINUTE),
    ]
    other = record(tenant, "report~2", execution=execution(tenant, "report~2", NOON))
    await history.write([*(record(tenant, "report", execution=row) for row in rows), other])

    async def told(first: int, last: int, **more: Any) -> set[tuple[str, str, int]]:
        found = await history.outcomes(tenant, "report", NOON + first * MINUTE, NOON + last * MINUTE, **more)
        return {tuple(row) for row in found}

    whole = {(row.key, row.outcome, row.seq) for row in rows if row.trigger != "manual"}
    assert await told(0, 2) == whole
    assert await told(1, 1) == {(row.key, row.outcome, row.seq) for row in rows[1:3]}
    assert await told(0, 2, succeeded=True) == {row for row in whole if row[1] == "succeeded"}
