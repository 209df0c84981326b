"""Every test of this directory runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from infra.database import Database, History, JobIndex
from tests.infra.database.postgres import PostgresServer, postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def new_url(
    dialect: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """URLs of databases that are empty and nobody else's."""
    if dialect == "sqlite":
        directory: Path = tmp_path_factory.mktemp("sqlite")
        return lambda: f"sqlite+aiosqlite:///{directory / f'{next(_numbers)}.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda: server.create_database(f"test{next(_numbers)}")


@pytest.fixture(scope="session")
async def database(new_url: Callable[[], str]) -> AsyncIterator[Database]:
    """A migrated database that the tests share, each with a tenant of its own."""
    opened = Database.open(new_url())
    await opened.migrate()
    yield opened
    await opened.close()


@pytest.fixture
def tenant() -> str:
    return f"tenant-{next(_numbers)}"


@pytest.fixture
def index(database: Database) -> JobIndex:
    return JobIndex(database)


@pytest.fixture
def history(database: Database) -> History:
    return History(database)
