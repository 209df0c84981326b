"""The feed of changes: everything in order, nothing missed, whoever writes and commits when."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa

from infra.database import BadCursor, Change, Database, Feed, History, JobIndex, Place, records
from infra.database.executions import StoredExecution
from tests.infra.database.samples import (
    NOON,
    create,
    execution,
    job_row,
    progress,
    record,
    reserve,
    run_records,
)

MINUTE = timedelta(minutes=1)


@pytest.fixture
def feed(database: Database) -> Feed:
    return Feed(database)


def names(changes: object) -> list[str]:
    assert isinstance(changes, list | tuple)
    return [_name(change) for change in changes]


def _name(change: Change) -> str:
    what = change.what
    return (
        f"{what.row.key} {what.row.outcome}"
        if isinstance(what, StoredExecution)
        else f"{what.ref} {what.status}"
    )


async def follow(
    feed: Feed, tenant: str, after: Place, limit: int = 100, job: str | None = None
) -> list[Change]:
    """Everything behind a place, page by page."""
    found: list[Change] = []
    while True:
        reading = await feed.read(tenant, after, job=job, limit=limit)
        found += reading.changes
        if not reading.more:
            return found
        after = reading.upto


async def test_changes_come_in_the_order_of_their_writing(
    feed: Feed, index: JobIndex, history: History, tenant: str
) -> None:
    begin = await feed.present()
    await create(index, tenant)
    fired, ended = run_records(tenant)
    await history.write([fired])
    key = execution(tenant).key
    assert names(await follow(feed, tenant, begin)) == ["report active", f"{key} running"]
    await index.apply(tenant, job_row(change=2, status="paused"))
    middle = await feed.present()
    await history.write([ended])
    await history.write([ended])
    assert names(await follow(feed, tenant, begin)) == ["report paused", f"{key} succeeded"]
    [told] = await follow(feed, tenant, middle)
    assert isinstance(told.what, StoredExecution)
    assert len(told.what.attempts) == 1
    await index.apply(tenant, job_row(change=3, status="deleted"))
    assert names(await follow(feed, tenant, begin)) == [f"{key} succeeded", "report deleted"]
    assert await follow(feed, f"{tenant}-other", begin) == []
    assert await follow(feed, tenant, await feed.present()) == []


async def test_what_is_no_change_is_not_told(
    feed: Feed, index: JobIndex, history: History, tenant: str
) -> None:
    """A reservation, one that is given up, late words, and a job's counts."""
    await create(index, tenant)
    await index.apply(tenant, job_row(change=5))
    await history.write(run_records(tenant))
    begin = await feed.present()
    reservation = await reserve(index, tenant, "other")
    await index.release(tenant, reservation.job.ref, now=NOON)
    await index.apply(tenant, job_row(change=4, status="paused"))
    await history.write(run_records(tenant)[:1])
    await history.write([record(tenant, progress=progress(7))])
    assert await follow(feed, tenant, begin) == []


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
async def test_pages_within_one_transaction_neither_double_nor_hide(
    feed: Feed, index: JobIndex, history: History, tenant: str, limit: int
) -> None:
    """Executions and jobs of one position; the place holds kind and key."""
    for number in range(5):
        await create(index, tenant, f"job-{number}")
    begin = await feed.present()
    rows = [record(tenant, execution=execution(tenant, at=NOON + MINUTE * n)) for n in range(12)]
    changed = [record(tenant, f"job-{n}", job=job_row(f"job-{n}", change=9)) for n in range(5)]
    await history.write([*changed, *rows])
    await history.write([record(tenant, execution=execution(tenant, at=NOON - MINUTE))])
    told = await follow(feed, tenant, begin, limit)
    assert len(told) == len({change.place for change in told}) == 18
    assert [change.place for change in told] == sorted(change.place for change in told)
    only = await follow(feed, tenant, begin, limit, job="job-3")
    assert names(only) == ["job-3 active"]


async def test_a_transaction_that_commits_late_is_not_missed(
    feed: Feed, database: Database, history: History, tenant: str
) -> None:
    """It began first and commits last: whoever reads in between waits for it instead of passing it by."""
    begin = await feed.present()
    loop = asyncio.get_running_loop()
    written, commit = asyncio.Event(), threading.Event()

    def slow(connection: sa.Connection) -> None:
        records.write(connection, [record(tenant, execution=execution(tenant, at=NOON))])
        loop.call_soon_threadsafe(written.set)
        if database.dialect == "sqlite":
            commit.wait(5)

    if database.dialect == "sqlite":
        first = asyncio.create_task(database.write(slow))
        await written.wait()
        second = asyncio.create_task(
            history.write([record(tenant, execution=execution(tenant, at=NOON + MINUTE))])
        )
        early = await feed.read(tenant, begin)
        commit.set()
        await asyncio.gather(first, second)
    else:
        engine = database._backend.blocking_engine(timedelta(seconds=5))
        with engine.connect() as connection, connection.begin():
            slow(connection)
            await history.write([record(tenant, execution=execution(tenant, at=NOON + MINUTE))])
            early = await feed.read(tenant, begin)
        engine.dispose()
    late = await follow(feed, tenant, early.upto)
    assert len([*early.changes, *late]) == 2


async def test_a_reader_among_many_writers_sees_every_row(feed: Feed, history: History, tenant: str) -> None:
    begin = place = await feed.present()
    seen: list[Change] = []
    writers = [
        asyncio.create_task(
            history.write([record(tenant, execution=execution(tenant, at=NOON + MINUTE * (10 * w + n)))])
        )
        for w in range(12)
        for n in range(10)
    ]
    done = False
    while True:
        reading = await feed.read(tenant, place, limit=7)
        seen += reading.changes
        place = reading.upto
        if done and not reading.changes:
            break
        done = all(writer.done() for writer in writers)
    await asyncio.gather(*writers)
    assert len(seen) == 120
    assert len({change.place.name for change in seen}) == 120
    assert begin < place


async def test_heads_say_which_tenants_have_news(
    feed: Feed, index: JobIndex, history: History, tenant: str
) -> None:
    begin = await feed.present()
    assert await feed.heads([tenant, "nobody"]) == {tenant: 0, "nobody": 0}
    await create(index, tenant)
    created = (await feed.heads([tenant]))[tenant]
    assert created > begin.position
    await history.write(run_records(tenant))
    assert (await feed.heads([tenant]))[tenant] > created


@pytest.mark.parametrize("text", ["", "x", "é", "W10", "WzEsImpvYiIsIgAiXQ", "a" * 2000])
def test_a_text_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        Place.parse(text)


def test_a_place_is_read_back() -> None:
    place = Place(2**62, "execution", "acme/report~2:2026-12-01T09:00:00Z")
    assert Place.parse(place.text()) == place
    assert Place.behind(5) > Place(5, "job", "zzz~9")
