"""PostgreSQL: an asynchronous pool whose every wait is bounded, at the server and at the client."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import create_async_engine

T = TypeVar("T")

_WORD_OF_CANCEL = timedelta(seconds=0.25)
"""How long the server has to say that it has stopped a statement that was given up."""


class PostgresBackend:
    """Reads run in autocommit, so they cost one round trip a statement."""

    def __init__(self, url: URL, *, timeout: timedelta, pool_size: int) -> None:
        self._url = url
        self._timeout = timeout
        self._calls: set[asyncio.Task[Any]] = set()
        self._engine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=timeout.total_seconds() * 0.6,
            connect_args=_connect_args(timeout),
        )
        self._reading = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def run(self, work: Callable[[sa.Connection], T], *, write: bool) -> T:
        """Whoever is cancelled is free again soon, though the server says nothing."""
        call = asyncio.create_task(self._run(work, write=write))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await _give_up(call)
            raise

    async def _run(self, work: Callable[[sa.Connection], T], *, write: bool) -> T:
        if write:
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)
        async with self._reading.connect() as connection:
            return await connection.run_sync(work)

    def blocking_engine(self, timeout: timedelta) -> sa.Engine:
        return sa.create_engine(self._url, poolclass=sa.NullPool, connect_args=_connect_args(timeout))

    async def close(self) -> None:
        """Waits for calls under way, be they given up: a connection that came back to the pool behind its end
        would stay open."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout.total_seconds() + 2 * _WORD_OF_CANCEL.total_seconds()
        try:
            while self._calls and loop.time() < until:  # more may begin meanwhile
                await asyncio.wait(self._calls, timeout=until - loop.time())
        finally:
            await self._engine.dispose()


async def _give_up(call: asyncio.Task[Any]) -> None:
    """End a call whose answer nobody waits for any more.

    The driver asks the server to stop the statement and would wait ten seconds for its word; cancelled
    again it closes the connection at once.
    """
    try:
        call.cancel()
        await asyncio.wait([call], timeout=_WORD_OF_CANCEL.total_seconds())
    finally:
        call.cancel()


def _connect_args(timeout: timedelta) -> dict[str, Any]:
    milliseconds = math.ceil(timeout.total_seconds() * 1000)
    settings = {
        "timezone": "UTC",
        "statement_timeout": milliseconds,
        # Shorter than the statement's, so that the error names the lock.
        "lock_timeout": milliseconds * 6 // 10,
        "idle_in_transaction_session_timeout": 2 * milliseconds,
    }
    return {
        "connect_timeout": max(2, math.ceil(timeout.total_seconds() * 0.6)),
        "application_name": "carillon",
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        # A peer that vanished without a word is noticed by the kernel.
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 2 * milliseconds,
    }
