"""Transactions: bounded waits, one kind of error, and nothing left behind by those who give up."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from infra.database import Database, DatabaseError, DatabaseRejected, DatabaseUnavailable
from infra.database.schema import tenant_usage
from tests.infra.database.postgres import PostgresServer
from tests.infra.database.samples import NOW
from tests.stopwatch import Stopwatch

USAGE = {"jobs": 0, "tokens": 1.0, "refilled_at": NOW}


@pytest.fixture
async def hasty(new_url: Callable[[], str]) -> AsyncIterator[Database]:
    """A database whose calls end within half a second."""
    opened = Database.open(new_url(), timeout=timedelta(seconds=0.5), pool_size=2)
    await opened.migrate()
    yield opened
    await opened.close()


async def add(database: Database, tenant: str) -> None:
    await database.write(lambda c: c.execute(sa.insert(tenant_usage).values(tenant=tenant, **USAGE)))


async def count(database: Database) -> int:
    query = sa.select(sa.func.count()).select_from(tenant_usage)
    return await database.read(lambda c: c.execute(query).scalar_one())


async def test_a_failed_transaction_leaves_nothing(hasty: Database) -> None:
    """What is not ours passes through as it is."""

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.insert(tenant_usage).values(tenant="a", **USAGE))
        raise LookupError("a defect")

    with pytest.raises(LookupError):
        await hasty.write(work)
    assert await count(hasty) == 0


@pytest.mark.parametrize(
    ("values", "error"),
    [
        pytest.param({"tenant": "a"}, DatabaseRejected, id="twice"),
        pytest.param({"tenant": "b", "jobs": None}, DatabaseRejected, id="null"),
        pytest.param({"tenant": "b", "jobs": 2**70}, DatabaseRejected, id="too large"),
        pytest.param({"tenant": "b\ud800"}, DatabaseRejected, id="half of a surrogate pair"),
        pytest.param({"tenant": "b", "refilled_at": datetime(2026, 1, 1)}, DatabaseRejected, id="naive"),  # noqa: DTZ001
        pytest.param({"tenant": "b", "missing": 1}, sa.exc.CompileError, id="a defect"),
    ],
)
async def test_values_are_blamed_only_if_they_are_at_fault(
    hasty: Database, values: dict[str, object], error: type[Exception]
) -> None:
    await add(hasty, "a")
    with pytest.raises(error):
        await hasty.write(lambda c: c.execute(sa.insert(tenant_usage).values(**{**USAGE, **values})))
    await add(hasty, "c")
    assert await count(hasty) == 2


async def test_a_schema_that_is_not_there_is_no_fault_of_the_values(new_url: Callable[[], str]) -> None:
    """Records must not be given up because a migration is missing."""
    database = Database.open(new_url())
    await database.ping()
    with pytest.raises(DatabaseUnavailable, match="migrated"):
        await add(database, "a")
    await database.close()


async def test_a_database_that_is_not_there(dialect: str) -> None:
    """Refused connections and missing directories are said at once."""
    nowhere = {
        "sqlite": "sqlite+aiosqlite:////nonexistent/directory/a.db",
        "postgresql": "postgresql+psycopg://nobody@127.0.0.1:1/nothing",
    }
    database = Database.open(nowhere[dialect])
    with Stopwatch() as trying:
        with pytest.raises(DatabaseUnavailable) as failure:
            await database.ping()
        with pytest.raises(DatabaseError):
            await database.migrate()
    assert failure.value.code == "database_unavailable"
    assert trying.seconds < 3
    await database.close()


async def test_a_peer_that_says_nothing_is_given_up() -> None:
    """A port that accepts and never answers: the wait is bounded at our end."""

    accepted: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    silent = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    database = Database.open(f"postgresql+psycopg://x@127.0.0.1:{port}/x", timeout=timedelta(seconds=0.3))
    with Stopwatch() as trying, pytest.raises(DatabaseUnavailable, match="in time"):
        await database.ping()
    assert trying.seconds < 3
    await database.close()
    silent.close()
    assert accepted
    for writer in accepted:
        writer.transport.abort()
    await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop


@pytest.mark.parametrize("write", [pytest.param(False, id="read"), pytest.param(True, id="write")])
async def test_a_server_that_falls_silent_in_a_statement_is_given_up(postgres_url: str, write: bool) -> None:
    """Not even its word that it has stopped is waited for, and the connection is given up with it."""
    database = Database.open(postgres_url, timeout=timedelta(seconds=0.5), pool_size=1)
    call = database.write if write else database.read
    backends: list[int] = []

    def freeze(connection: sa.Connection) -> object:
        backends.append(connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())
        os.kill(backends[-1], signal.SIGSTOP)
        return connection.scalar(sa.text("SELECT 1"))

    try:
        with Stopwatch() as trying, pytest.raises(DatabaseUnavailable, match="in time"):
            await call(freeze)
        assert trying.seconds < 4
        for _ in range(4):  # more often than there are connections
            await database.ping()
    finally:
        for backend in backends:
            os.kill(backend, signal.SIGCONT)
        await database.close()


async def test_a_row_locked_by_another_is_not_waited_for_long(hasty: Database) -> None:
    """The second writer is told within its bound; the first one's work stands."""
    await add(hasty, "a")
    held, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    engine = hasty._backend.blocking_engine(timedelta(seconds=30))

    def hold() -> None:
        with engine.begin() as connection:
            connection.execute(sa.update(tenant_usage).values(jobs=7))
            loop.call_soon_threadsafe(held.set)
            assert release.wait(30)

    holding = asyncio.create_task(asyncio.to_thread(hold))
    await held.wait()
    with Stopwatch() as trying, pytest.raises(DatabaseUnavailable):
        await hasty.write(lambda c: c.execute(sa.update(tenant_usage).values(jobs=8)))
    assert trying.seconds < 4
    release.set()
    await holding
    engine.dispose()
    query = sa.select(tenant_usage.c.jobs)
    assert await hasty.read(lambda c: c.execute(query).scalar_one()) == 7


async def test_a_transaction_that_reads_first_keeps_its_turn(new_url: Callable[[], str]) -> None:
    """Two pools on one database, both reading before they write: nobody is turned away."""
    url = new_url()
    pools = [Database.open(url), Database.open(url)]
    await pools[0].migrate()

    def work(connection: sa.Connection, tenant: str) -> None:
        connection.execute(sa.select(tenant_usage)).all()
        connection.execute(sa.insert(tenant_usage).values(tenant=tenant, **USAGE))

    await asyncio.gather(*(pools[n % 2].write(partial(work, tenant=f"t{n}")) for n in range(60)))
    assert await count(pools[0]) == 60
    for pool in pools:
        await pool.close()


async def test_callers_that_give_up_leave_the_pool_whole(hasty: Database) -> None:
    """Cancelled at any point of a call, again and again, connections are neither lost nor left open."""
    for n in range(60):
        task = asyncio.create_task(add(hasty, f"t{n}"))
        for _ in range(n % 15):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await asyncio.gather(*(hasty.ping() for _ in range(10)))
    await add(hasty, "last")
    assert 1 <= await count(hasty) <= 61


async def test_instants_are_read_in_utc(hasty: Database) -> None:
    await add(hasty, "a")
    stored = await hasty.read(lambda c: c.execute(sa.select(tenant_usage.c.refilled_at)).scalar_one())
    assert stored == NOW
    assert stored.tzinfo is UTC


@pytest.mark.parametrize("given_up", [False, True])
async def test_the_end_waits_for_calls_under_way(
    postgres_server: PostgresServer, tenant: str, given_up: bool
) -> None:
    """A connection that came back to the pool behind its end would stay open, and warn of it some time."""
    database = Database.open(postgres_server.create_database(tenant))
    await database.ping()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def sleep(connection: sa.Connection) -> None:
        loop.call_soon(begun.set)
        connection.execute(sa.text("SELECT pg_sleep(0.5)"))

    call = asyncio.create_task(database.read(sleep))
    await begun.wait()
    if given_up:
        call.cancel()
        await asyncio.sleep(0)
    await database.close()
    await asyncio.wait([call], timeout=30)
    assert call.cancelled() == given_up
    gc.collect()
    other = Database.open(postgres_server.url())
    open_ones = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = :name").bindparams(name=tenant)
    async with asyncio.timeout(30):
        while await other.read(lambda connection: connection.scalar(open_ones)):
            await asyncio.sleep(0.05)
    await other.close()
