"""SQLite: one thread that writes, a few that read.

A transaction is one hop to a thread and back: 0.22 ms of processor time for three small statements. The
asynchronous driver hops several times a statement (1.08 ms), and a call that is given up leaves its
connection in an unknown state; here the thread ends what it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL

T = TypeVar("T")

_WRITES = "carillon_writes"


class SqliteBackend:
    """WAL, so readers and the writer do not wait for each other; write transactions begin IMMEDIATE.

    The single writing thread queues this process's transactions in order; those of other processes
    are waited for by SQLite itself, for a bit less than ``timeout``.
    """

    def __init__(self, url: URL, *, timeout: timedelta, readers: int, durable: bool) -> None:
        self._url = url
        self._durable = durable
        self._engine = self._make_engine(timeout * 0.6, connections=readers + 1)
        self._writing = self._engine.execution_options(**{_WRITES: True})
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="sqlite-write")
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="sqlite-read")

    async def run(self, work: Callable[[sa.Connection], T], *, write: bool) -> T:
        loop = asyncio.get_running_loop()
        if write:
            return await loop.run_in_executor(self._writer, self._write, work)
        return await loop.run_in_executor(self._readers, self._read, work)

    def blocking_engine(self, timeout: timedelta) -> sa.Engine:
        return self._make_engine(timeout, connections=1).execution_options(**{_WRITES: True})

    async def close(self) -> None:
        await asyncio.to_thread(self._writer.shutdown)
        await asyncio.to_thread(self._readers.shutdown)
        self._engine.dispose()

    def _write(self, work: Callable[[sa.Connection], T]) -> T:
        with self._writing.begin() as connection:
            return work(connection)

    def _read(self, work: Callable[[sa.Connection], T]) -> T:
        with self._engine.connect() as connection:
            return work(connection)

    def _make_engine(self, busy: timedelta, *, connections: int) -> sa.Engine:
        engine = sa.create_engine(
            self._url,
            poolclass=sa.QueuePool,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=busy.total_seconds(),
            # The driver shall not begin transactions by itself: _begin does.
            connect_args={
                "timeout": busy.total_seconds(),
                "isolation_level": None,
                "check_same_thread": False,
            },
        )
        synchronous = "full" if self._durable else "normal"

        def on_connect(connection: Any, _record: Any) -> None:
            cursor = connection.cursor()
            if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                cursor.execute("PRAGMA journal_mode=wal")
            cursor.execute(f"PRAGMA synchronous={synchronous}")
            cursor.execute("PRAGMA foreign_keys=on")
            cursor.close()

        sa.event.listen(engine, "connect", on_connect)
        sa.event.listen(engine, "begin", _begin)
        return engine


def _begin(connection: sa.Connection) -> None:
    if connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
