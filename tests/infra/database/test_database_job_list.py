"""Lists of jobs: what they show, in which order, and what happens between two pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.database import BadCursor, Database, History, JobIndex
from infra.database.job_list import JobSort
from infra.database.page import encode_cursor
from tests.infra.database.samples import NOW, create, definition, job_row, progress, record, reserve, row_of


async def all_pages(index: JobIndex, tenant: str, limit: int, **options: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await index.list(tenant, limit=limit, cursor=cursor, **options)
        assert len(page.items) <= limit
        found += [job.job for job in page.items]
        if page.next_cursor is None:
            return found
        assert len(page.items) == limit
        cursor = page.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_pages_join_to_the_whole_list(index: JobIndex, tenant: str, limit: int) -> None:
    """Ids compare byte by byte; jobs made in one instant follow by id, in any page size."""
    ages = {"b": 0, "a": 0, "a-b": 0, "a.b": 1, "ab": 1, "a0": 1, "z": 2}
    for job, age in ages.items():
        await create(index, tenant, job, now=NOW + timedelta(microseconds=age))
    assert await all_pages(index, tenant, limit) == ["a", "a-b", "a.b", "a0", "ab", "b", "z"]
    newest = ["z", "a.b", "a0", "ab", "a", "a-b", "b"]
    assert await all_pages(index, tenant, limit, sort="-created_at") == newest


@pytest.mark.parametrize("sort", ["id", "-created_at"])
async def test_changes_between_pages_disturb_nobody_else(index: JobIndex, tenant: str, sort: JobSort) -> None:
    """What exists throughout is seen exactly once, whatever comes, goes or changes around the cursor."""
    for n in range(10):
        await create(index, tenant, f"job{n}", now=NOW + timedelta(seconds=n % 3))
    page = await index.list(tenant, limit=4, sort=sort)
    seen = [job.job for job in page.items]
    for job in (seen[-1], seen[0]):  # the row of the cursor itself, too
        await index.apply(tenant, job_row(job, status="deleted", change=2))
    survivors = {f"job{n}" for n in range(10)} - {seen[-1], seen[0]}
    await create(index, tenant, "a-new-first")
    await create(index, tenant, "z-new-last", now=NOW - timedelta(days=1))
    await index.apply(tenant, job_row("job5", change=2, updated_at=NOW + timedelta(days=1)))
    while page.next_cursor is not None:
        page = await index.list(tenant, limit=4, sort=sort, cursor=page.next_cursor)
        seen += [job.job for job in page.items]
    assert len(seen) == len(set(seen))
    assert survivors <= set(seen)


async def test_reserved_and_deleted_jobs_and_other_tenants_are_hidden(index: JobIndex, tenant: str) -> None:
    await create(index, tenant, "seen")
    await create(index, f"{tenant}-other", "foreign")
    await create(index, tenant, "deleted")
    await index.apply(tenant, job_row("deleted", status="deleted", change=2))
    await reserve(index, tenant, "reserved")
    assert await all_pages(index, tenant, 10) == ["seen"]
    assert await index.get(tenant, "foreign") is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["alpha", "beta", "delta", "gamma"]),
        ({"status": ["paused"]}, ["beta"]),
        ({"status": ["paused", "completed"]}, ["beta", "gamma"]),
        ({"status": []}, []),
        ({"labels": {"team": "billing"}}, ["alpha", "gamma"]),
        ({"labels": {"team": "billing", "tier": "1"}}, ["alpha"]),
        ({"labels": {"team": "Billing"}}, []),
        ({"labels": {"team": "bill"}}, []),
        ({"labels": {"am": "billing"}}, []),
        ({"labels": {"odd &=%_": "ü&team=x"}}, ["beta"]),
        ({"labels": {"team": "x"}}, []),
        ({"labels": {"nul": "\x00"}}, []),
        ({"target": "http"}, ["alpha", "beta", "delta", "gamma"]),
        ({"target": "https://b.example/Path"}, ["beta"]),
        ({"target": "b.example/path"}, []),
        ({"target": "%"}, []),
        ({"outcome": ["succeeded"]}, ["alpha"]),
        ({"outcome": ["dead_lettered", "running"]}, ["delta"]),
        ({"q": "ALPHA"}, ["alpha"]),
        ({"q": "straße"}, ["gamma"]),
        ({"q": "ÜBER"}, ["beta"]),
        ({"q": "100%"}, ["gamma"]),
        ({"q": "_"}, ["beta"]),
        ({"q": "\\"}, ["delta"]),
        ({"q": "l"}, ["alpha", "delta"]),
        ({"q": "aalpha"}, []),
        ({"q": "'; DROP TABLE jobs; --"}, []),
        ({"q": "x\x00y"}, []),
        ({"q": "a", "status": ["active"], "labels": {"team": "billing"}}, ["alpha"]),
    ],
    ids=str,
)
async def test_filters(database: Database, tenant: str, options: dict[str, Any], expected: list[str]) -> None:
    index, history = JobIndex(database), History(database)
    await create(index, tenant, "alpha", definition=definition(labels={"team": "billing", "tier": "1"}))
    await create(
        index,
        tenant,
        "beta",
        definition=definition(
            description="Über snake_case", labels={"odd &=%_": "ü&team=x"}, url="https://b.example/Path"
        ),
        row={"status": "paused"},
    )
    await create(
        index,
        tenant,
        "gamma",
        definition=definition(description="STRASSE 100%", labels={"team": "billing"}),
        row={"status": "completed"},
    )
    await create(index, tenant, "delta", definition=definition(description="back\\slash"))
    await history.write([record(tenant, "alpha", progress=progress(1))])
    await history.write([record(tenant, "delta", progress=progress(1, outcome="dead_lettered"))])
    assert await all_pages(index, tenant, 2, **options) == expected


async def test_filters_follow_an_edit(index: JobIndex, tenant: str) -> None:
    stored = await create(index, tenant, definition=definition(labels={"team": "a"}))
    edited = definition(labels={"team": "b"}, description="new words")
    await index.apply(tenant, row_of(stored, change=2, revision=2, definition=edited))
    assert await all_pages(index, tenant, 10, labels={"team": "a"}) == []
    assert await all_pages(index, tenant, 10, labels={"team": "b"}, q="WORDS") == ["report"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "\x00",
        "W10",
        "bnVsbA",
        "A" * 5000,
        "W" * 1000,
        encode_cursor("-created_at", name="a", instant=NOW),
        encode_cursor("-scheduled_time", name="a", instant=NOW),
        encode_cursor("id", name="a", instant=NOW),
        encode_cursor("id", name="a\x00"),
        encode_cursor("id", name="\ud800"),
    ],
    ids=repr,
)
async def test_a_cursor_of_another_list_is_refused(index: JobIndex, tenant: str, cursor: str) -> None:
    with pytest.raises(BadCursor):
        await index.list(tenant, cursor=cursor)


async def test_a_cursor_beyond_every_calendar_is_refused(index: JobIndex, tenant: str) -> None:
    with pytest.raises(BadCursor):
        await index.list(
            tenant, sort="-created_at", cursor="Wy1jcmVhdGVkX2F0LCJhIiw5OTk5OTk5OTk5OTk5OTk5OTk5OTld"
        )


async def test_jobs_that_should_have_fired_are_found(index: JobIndex, tenant: str) -> None:
    past = datetime(1980, 1, 1, tzinfo=UTC)
    for n, status in enumerate(["active", "active", "paused", "deleted"]):
        row = {"next_fires_at": past + timedelta(seconds=2 - n), "status": status}
        reservation = await reserve(index, tenant, f"job{n}")
        await index.activate(tenant, row_of(reservation.job, **row))
    assert [job.job for job in await index.overdue(past + timedelta(hours=1), 10)] == ["job1", "job0"]
    assert [job.job for job in await index.overdue(past + timedelta(seconds=2), 10)] == ["job1"]
    await index.apply(tenant, job_row("job0", status="deleted", change=2))
    await index.apply(tenant, job_row("job1", status="deleted", change=2))
    assert await index.overdue(past + timedelta(hours=1), 10) == []
