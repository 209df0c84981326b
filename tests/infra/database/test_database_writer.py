"""The records channel of a worker: batches, bounds, poison, a database that goes and comes back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from infra.database import Database, DatabaseUnavailable, History, RecordWriter
from tests.infra.database.postgres import PostgresServer
from tests.infra.database.samples import attempt, execution, record, run_records
from tests.stopwatch import Stopwatch
from workflows.contracts.records import Record

SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=10)


@pytest.fixture
async def writer(database: Database) -> AsyncIterator[RecordWriter]:
    made = RecordWriter(database)
    made.start()
    yield made
    await made.close()


def runs(tenant: str, count: int) -> list[list[Record]]:
    return [run_records(tenant, f"job{n}", run=n + 1) for n in range(count)]


async def stored(history: History, tenant: str) -> list[str]:
    found = (await history.list_executions(tenant, limit=1000)).items
    return sorted(f"{told.job} {told.row.outcome}" for told in found)


async def store_again(writer: RecordWriter, records: Sequence[Record]) -> None:
    """What a caller does with what was not stored, more often."""
    async with asyncio.timeout(30):
        while not await writer.store(records, LONG):
            await asyncio.sleep(0.01)


class Gate:
    """A database that waits, or fails, before each write."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.open = asyncio.Event()
        self.broken = False
        self.writes = 0
        self.reached = asyncio.Event()

    async def write(self, work: Callable[[sa.Connection], None]) -> None:
        self.writes += 1
        self.reached.set()
        if self.broken:
            raise DatabaseUnavailable("broken on purpose")
        await self.open.wait()
        await self._database.write(work)


def gated(database: Database, **options: int) -> tuple[Gate, RecordWriter]:
    gate = Gate(database)
    made = RecordWriter(gate, **options)  # type: ignore[arg-type]  # it only writes
    made.start()
    return gate, made


async def test_true_means_committed(history: History, writer: RecordWriter, tenant: str) -> None:
    assert await writer.store(run_records(tenant), LONG)
    assert await stored(history, tenant) == ["report succeeded"]
    assert await writer.store([], LONG)


async def test_many_callers_share_few_transactions(
    history: History, writer: RecordWriter, tenant: str
) -> None:
    answers = await asyncio.gather(*(writer.store(told, LONG) for told in runs(tenant, 500)))
    assert all(answers)
    assert len(await stored(history, tenant)) == 500
    assert writer.counts.stored == 1000
    assert writer.counts.batches <= 12


async def test_a_run_that_fired_and_ended_is_one_row(
    history: History, writer: RecordWriter, tenant: str
) -> None:
    """That it fired waits a moment for how it ended; without an end it is written all the same."""
    fired, ended = run_records(tenant)
    writer.offer([fired])
    assert await writer.store([ended], LONG)
    assert writer.counts.batches == 1
    writer.offer(run_records(tenant, "other")[:1])
    writer.offer([])
    deadline = time.monotonic() + 30
    while await stored(history, tenant) != ["other running", "report succeeded"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_nobody_waits_longer_than_they_say(database: Database, history: History, tenant: str) -> None:
    """The records of a wait that is over are written later all the same; a cancelled caller too."""
    gate, writer = gated(database)
    with Stopwatch() as storing:
        assert not await writer.store(run_records(tenant), SHORT)
    assert storing.seconds < 2
    cancelled = asyncio.create_task(writer.store(run_records(tenant, "other"), LONG))
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.open.set()
    assert await writer.store(run_records(tenant, "third"), LONG)
    assert cancelled.cancelled()
    assert await stored(history, tenant) == ["other succeeded", "report succeeded", "third succeeded"]
    await writer.close()


async def test_a_full_queue_refuses_at_once(database: Database, history: History, tenant: str) -> None:
    """What is offered to a full queue is dropped and counted; what is stored is refused and kept."""
    gate, writer = gated(database, max_records=4)
    first = asyncio.create_task(writer.store(run_records(tenant), LONG))
    await gate.reached.wait()
    writer.offer(run_records(tenant, "a"))
    writer.offer(run_records(tenant, "b"))
    writer.offer(run_records(tenant, "c"))
    with Stopwatch() as storing:
        assert not await writer.store(run_records(tenant, "d"), LONG)
    assert storing.seconds < 1
    assert (writer.queued, writer.counts.dropped) == (4, 2)
    gate.open.set()
    assert await first
    await writer.close()
    assert await stored(history, tenant) == ["a succeeded", "b succeeded", "report succeeded"]


async def test_large_texts_fill_the_queue_too(database: Database, tenant: str) -> None:
    _, writer = gated(database, max_bytes=10_000)
    row = execution(tenant)
    large = record(tenant, execution=row, attempt=attempt(row.key, answer="x" * 9000))
    assert not await writer.store([large], LONG)
    await writer.close()


async def test_after_a_failure_nobody_is_held(
    database: Database, history: History, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who wait are told at once, as are those who come during the pause; what was offered is lost."""
    monkeypatch.setattr("infra.database.writer._FIRST_PAUSE", 1.0)
    gate, writer = gated(database)
    gate.broken = True
    gate.open.set()
    writer.offer(run_records(tenant, "offered"))
    with Stopwatch() as storing:
        assert not await writer.store(run_records(tenant), LONG)
        assert not writer.available
        assert not await writer.store(run_records(tenant), LONG)
    assert storing.seconds < 2
    assert (gate.writes, writer.counts.failures, writer.queued, writer.counts.dropped) == (1, 1, 0, 2)
    gate.broken = False
    await store_again(writer, run_records(tenant))
    assert await stored(history, tenant) == ["report succeeded"]
    await writer.close()


async def test_the_pauses_grow(database: Database, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 s doubling to 2 s: a database that is away is not asked more often."""
    pauses: list[float] = []
    enough = asyncio.Event()

    async def at_once(event: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 30:
            enough.set()
        writer.offer(run_records(tenant))
        await asyncio.sleep(0)

    monkeypatch.setattr("infra.database.writer._wait", at_once)
    gate, writer = gated(database)
    gate.broken = True
    writer.offer(run_records(tenant))
    await enough.wait()
    await writer.close()
    failed = [pause for pause in pauses if pause in (0.1, 0.2, 0.4, 0.8, 1.6) or pause > 1]
    assert failed[:7] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


async def test_poison_does_not_stop_the_others(
    history: History, writer: RecordWriter, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that no database holds is logged, counted and settled; its neighbours are stored."""
    poison = record(tenant, "poison", execution=execution(tenant, "poison", lateness_ms=2**80))
    told: list[Sequence[Record]] = [*runs(tenant, 20)]
    told.insert(7, [poison])
    told.insert(13, [*run_records(tenant, "neighbour"), poison])
    with caplog.at_level(logging.ERROR):
        answers = await asyncio.gather(*(writer.store(part, LONG) for part in told))
    assert all(answers)
    assert writer.counts.rejected == 2
    assert (
        len([line for line in caplog.records if "is lost" in line.message and "poison" in line.message]) == 2
    )
    assert await stored(history, tenant) == sorted(
        ["neighbour succeeded", *(f"job{n} succeeded" for n in range(20))]
    )


async def test_a_defect_of_ours_loses_nothing(
    writer: RecordWriter, history: History, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be written for a reason that is not the database's stays with the caller."""
    broken = record(tenant, "not~a~ref", progress=None, execution=execution(tenant))
    good, bad = await asyncio.gather(
        writer.store(run_records(tenant, "good"), LONG), writer.store([broken], LONG)
    )
    assert (good, bad) == (True, False)
    assert await stored(history, tenant) == ["good succeeded"]
    assert writer.counts.rejected == 0
    assert any("could not be written" in line.message for line in caplog.records)


async def test_close_writes_what_is_queued(database: Database, history: History, tenant: str) -> None:
    writer = RecordWriter(database)
    writer.start()
    writer.offer(run_records(tenant))
    await writer.close(LONG)
    assert await stored(history, tenant) == ["report succeeded"]
    assert not await writer.store(run_records(tenant, "late"), LONG)
    writer.offer(run_records(tenant, "late"))
    assert writer.counts.dropped == 2


async def test_close_is_bounded(database: Database, tenant: str) -> None:
    """A database that does not answer holds no shutdown up; those who wait are told."""
    gate, writer = gated(database)
    waiting = asyncio.create_task(writer.store(run_records(tenant), LONG))
    await gate.reached.wait()
    behind = asyncio.create_task(writer.store(run_records(tenant, "behind"), LONG))
    writer.offer(run_records(tenant, "offered"))
    await asyncio.sleep(0)
    with Stopwatch() as closing:
        await writer.close(SHORT)
        assert not any(await asyncio.gather(waiting, behind))
    assert closing.seconds < 2
    assert writer.counts.dropped == 2


async def test_a_postgres_that_stops_and_starts_again(postgres_server: PostgresServer, tenant: str) -> None:
    """While it is away stores fail fast; when it is back the same writer and the same pool go on."""
    database = Database.open(postgres_server.create_database(tenant))
    await database.migrate()
    history = History(database)
    writer = RecordWriter(database)
    writer.start()
    assert await writer.store(run_records(tenant, "before"), LONG)
    await asyncio.to_thread(postgres_server.stop)
    with Stopwatch() as storing:
        assert not await writer.store(run_records(tenant, "during"), LONG)
    assert storing.seconds < 3
    with pytest.raises(DatabaseUnavailable):
        await history.list_executions(tenant)
    await asyncio.to_thread(postgres_server.start)
    await store_again(writer, run_records(tenant, "during"))
    assert await stored(history, tenant) == ["before succeeded", "during succeeded"]
    await asyncio.to_thread(postgres_server.stop)
    await asyncio.to_thread(postgres_server.start)
    assert len(await stored(history, tenant)) == 2, "a connection that broke while idle is replaced unseen"
    await writer.close()
    await database.close()


async def test_a_sqlite_file_locked_by_somebody_else(tmp_path: Path, tenant: str) -> None:
    """A lock that outlasts the bound is a failure, not a hang; afterwards it goes on."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'locked.db'}"
    database = Database.open(url, timeout=timedelta(seconds=0.5))
    await database.migrate()
    writer = RecordWriter(database)
    writer.start()
    other = sa.create_engine(f"sqlite:///{tmp_path / 'locked.db'}", isolation_level="AUTOCOMMIT")
    with other.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with Stopwatch() as storing:
            assert not await writer.store(run_records(tenant), LONG)
        assert storing.seconds < 3
        connection.exec_driver_sql("ROLLBACK")
    other.dispose()
    await store_again(writer, run_records(tenant))
    assert await stored(History(database), tenant) == ["report succeeded"]
    await writer.close()
    await database.close()
