"""The execution history: what is read back, in which order, page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from infra.database import BadCursor, History
from infra.database.page import encode_cursor
from tests.infra.database.samples import NOON, NOW, attempt, execution, record, run_records
from workflows.contracts.names import scheduled_key
from workflows.contracts.records import sequence

MINUTE = timedelta(minutes=1)


async def all_keys(history: History, tenant: str, ref: str | None, limit: int, **options: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await history.list_executions(tenant, ref, limit=limit, cursor=cursor, **options)
        found += [told.row.key for told in page.items]
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


@pytest.mark.parametrize(
    "instant",
    [
        datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
    ids=str,
)
async def test_instants_keep_their_microseconds(history: History, tenant: str, instant: datetime) -> None:
    """Stored and read in UTC, whatever the zone of the value, the process or the server."""
    row = execution(tenant, started_at=instant, fires_at=instant, ended_at=instant)
    await history.write([record(tenant, execution=row)])
    told = await history.get_execution(tenant, row.key)
    assert told is not None
    assert told.row.started_at == told.row.fires_at == told.row.ended_at == instant
    assert told.row.started_at is not None
    assert told.row.started_at.tzinfo is UTC


async def test_everything_written_is_read_back(history: History, tenant: str) -> None:
    row_ref = "report~2"
    row = execution(
        tenant,
        row_ref,
        outcome="dead_lettered",
        trigger="manual",
        seq=sequence(2, 1, 9),
        started_at=NOW,
        ended_at=NOW + MINUTE,
        lateness_ms=12,
        reason="exhausted",
        revision=4,
        last_scheduled_time=NOON,
    )
    tries = [
        attempt(
            row.key, 2, ended_at=NOW + MINUTE, status_code=500, error="ü", answer="{}", worker="w", revision=4
        ),
        attempt(row.key, 1, delivery=2, outcome="timed_out"),
    ]
    await history.write(
        [record(tenant, row_ref, execution=row), *(record(tenant, row_ref, attempt=tried) for tried in tries)]
    )
    told = await history.get_execution(tenant, row.key)
    assert told is not None
    assert (told.tenant, told.ref, told.job) == (tenant, "report~2", "report")
    assert told.row == row
    assert told.attempts == (tries[1], tries[0])
    assert await history.get_execution(f"{tenant}-other", row.key) is None


async def test_what_targets_say_cannot_stop_a_write(history: History, tenant: str) -> None:
    """NUL bytes are left out, halves of surrogate pairs replaced; everything else stays."""
    row = execution(tenant, reason="a\x00b")
    tried = attempt(row.key).model_copy(update={"error": "x\ud800y", "answer": "\x00\x00", "worker": "w\x00"})
    await history.write([record(tenant, execution=row, attempt=tried)])
    told = await history.get_execution(tenant, row.key)
    assert told is not None
    assert (told.row.reason, told.attempts[0].error, told.attempts[0].answer) == ("ab", "x?y", "")
    assert told.attempts[0].worker == "w"


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_join_to_the_whole_history(history: History, tenant: str, limit: int) -> None:
    """Newest first; those of one instant by key; of one generation or of the whole tenant."""
    for ref in ("b", "a", "a~2"):
        for n in range(3):
            await history.write(run_records(tenant, ref, NOON + n * MINUTE))
    await history.write(run_records(f"{tenant}-other", "a"))
    times = [NOON + n * MINUTE for n in (2, 1, 0)]
    assert await all_keys(history, tenant, "a", limit) == [scheduled_key(tenant, "a", time) for time in times]
    everything = [
        key for time in times for key in sorted(scheduled_key(tenant, ref, time) for ref in ("a", "a~2", "b"))
    ]
    assert await all_keys(history, tenant, None, limit) == everything


async def test_new_runs_between_pages_disturb_nothing(history: History, tenant: str) -> None:
    for n in range(6):
        await history.write(run_records(tenant, at=NOON + n * MINUTE))
    page = await history.list_executions(tenant, "report", limit=3)
    seen = [told.row.key for told in page.items]
    for n in (6, 7):
        await history.write(run_records(tenant, at=NOON + n * MINUTE))
    await history.write([record(tenant, execution=execution(tenant, at=NOON, outcome="failed", seq=99_999))])
    page = await history.list_executions(tenant, "report", limit=3, cursor=page.next_cursor)
    seen += [told.row.key for told in page.items]
    assert seen == [scheduled_key(tenant, "report", NOON + n * MINUTE) for n in (5, 4, 3, 2, 1, 0)]
    assert page.next_cursor is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [4, 3, 2, 1, 0]),
        ({"outcome": ["running"]}, [4]),
        ({"outcome": ["retrying", "running"]}, [4, 3]),
        ({"outcome": ["succeeded"]}, [1, 0]),
        ({"outcome": []}, []),
        ({"trigger": ["manual"]}, [2]),
        ({"trigger": ["schedule", "manual"], "outcome": ["skipped"]}, [2]),
        ({"since": NOON + MINUTE}, [4, 3, 2, 1]),
        ({"until": NOON + MINUTE}, [0]),
        ({"since": NOON + MINUTE, "until": NOON + 3 * MINUTE}, [2, 1]),
        ({"since": NOON + MINUTE + timedelta(microseconds=1), "until": NOON + 3 * MINUTE}, [2]),
    ],
    ids=str,
)
async def test_filters(history: History, tenant: str, options: dict[str, Any], expected: list[int]) -> None:
    told: list[dict[str, Any]] = [
        {"outcome": "succeeded"},
        {"outcome": "succeeded"},
        {"outcome": "skipped", "trigger": "manual"},
        {"outcome": "retrying"},
        {"outcome": "running"},
    ]
    rows = [execution(tenant, at=NOON + n * MINUTE, **fields) for n, fields in enumerate(told)]
    await history.write([record(tenant, execution=row) for row in rows])
    keys = [scheduled_key(tenant, "report", NOON + n * MINUTE) for n in expected]
    assert await all_keys(history, tenant, "report", 2, **options) == keys
    assert await all_keys(history, tenant, None, 2, **options) == keys


@pytest.mark.parametrize(
    "cursor",
    ["", "x", encode_cursor("id", name="a"), encode_cursor("-created_at", name="a", instant=NOW)],
)
async def test_a_cursor_of_another_list_is_refused(history: History, tenant: str, cursor: str) -> None:
    with pytest.raises(BadCursor):
        await history.list_executions(tenant, cursor=cursor)


async def test_old_rows_are_forgotten_in_portions(history: History, tenant: str) -> None:
    """Oldest first, attempts too, and nobody else's."""
    for n in range(5):
        await history.write(run_records(tenant, at=NOON + n * MINUTE))
        await history.write(run_records(f"{tenant}-other", at=NOON + n * MINUTE))
    assert await history.forget(tenant, NOON + 3 * MINUTE, limit=2) == 2
    assert await history.forget(tenant, NOON + 3 * MINUTE, limit=2) == 1
    assert await history.forget(tenant, NOON + 3 * MINUTE, limit=2) == 0
    left = await history.list_executions(tenant)
    assert [told.row.scheduled_time for told in left.items] == [NOON + 4 * MINUTE, NOON + 3 * MINUTE]
    assert all(told.attempts for told in left.items)
    assert len((await history.list_executions(f"{tenant}-other")).items) == 5
