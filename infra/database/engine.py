"""The way in: one object a process, over SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url

from infra.database import migration
from infra.database.errors import DatabaseError, DatabaseUnavailable, translate
from infra.database.postgres import PostgresBackend
from infra.database.sqlite import SqliteBackend

T = TypeVar("T")
Work = Callable[[sa.Connection], T]
"""One transaction, written as a plain function; it may be called twice and must not do anything else."""

MIGRATION_TIMEOUT = timedelta(seconds=60)


class Backend(Protocol):
    """What differs between the two databases: how a function gets a connection and a transaction."""

    async def run(self, work: Work[T], *, write: bool) -> T: ...

    def blocking_engine(self, timeout: timedelta) -> sa.Engine:
        """An engine for a thread of its own, for migrations; its statements may take ``timeout``."""
        ...

    async def close(self) -> None: ...


class Database:
    """Transactions as functions of a connection: ``await database.write(lambda c: c.execute(…))``.

    Every call ends within about ``timeout``, with the answer or with a :class:`DatabaseError`; a write
    is retried once when its connection was lost or a deadlock chose it, so it has to be idempotent.
    """

    def __init__(self, backend: Backend, *, dialect: str, timeout: timedelta) -> None:
        self._backend = backend
        self._timeout = timeout
        self.dialect = dialect
        """``sqlite`` or ``postgresql``."""

    @classmethod
    def open(
        cls,
        url: str,
        *,
        timeout: timedelta = timedelta(seconds=5),
        pool_size: int = 5,
        durable: bool = False,
    ) -> Database:
        """A database for ``sqlite+aiosqlite:///file`` or ``postgresql+psycopg://…``; connects lazily.

        ``durable`` makes SQLite wait for the disk at each commit. Raises DatabaseError for a URL that
        is neither.
        """
        parsed = _parse(url)
        backend: Backend
        if parsed.get_backend_name() == "sqlite":
            backend = SqliteBackend(parsed, timeout=timeout, readers=pool_size, durable=durable)
        else:
            backend = PostgresBackend(parsed, timeout=timeout, pool_size=pool_size)
        return cls(backend, dialect=parsed.get_backend_name(), timeout=timeout)

    async def read(self, work: Work[T]) -> T:
        """Run ``work`` outside a transaction; each of its statements sees what is committed."""
        return await self._run(work, write=False)

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` in one transaction that may write."""
        return await self._run(work, write=True)

    async def migrate(self) -> None:
        """Bring the schema up to date; several processes may do so at once."""
        engine = self._backend.blocking_engine(MIGRATION_TIMEOUT)
        try:
            await asyncio.wait_for(
                asyncio.to_thread(migration.upgrade, engine, MIGRATION_TIMEOUT),
                MIGRATION_TIMEOUT.total_seconds() + self._timeout.total_seconds(),
            )
        except Exception as error:
            raise _translated(error) from error
        finally:
            engine.dispose()

    async def ping(self) -> None:
        """Ask the database for an answer. Raises DatabaseUnavailable if there is none in time."""
        await self.read(lambda connection: connection.scalar(sa.select(sa.literal(1))))

    async def close(self) -> None:
        """Close every connection, after the work that is under way."""
        await self._backend.close()

    async def _run(self, work: Work[T], *, write: bool) -> T:
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                try:
                    return await self._backend.run(work, write=write)
                except exc.DBAPIError as error:
                    failure = translate(error)
                    if not (isinstance(failure, DatabaseUnavailable) and failure.again):
                        raise
                return await self._backend.run(work, write=write)
        except Exception as error:
            raise _translated(error) from error


def _translated(error: Exception) -> Exception:
    return translate(error) or error


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        parsed = None
    if parsed is not None:
        if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
            return parsed.set(drivername="sqlite+pysqlite")
        if parsed.get_backend_name() == "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
    raise DatabaseError("CARILLON_DATABASE_URL must be sqlite+aiosqlite:///<file> or postgresql+psycopg://…")
