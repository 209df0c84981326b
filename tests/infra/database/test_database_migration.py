"""The schema: from nothing, twice, by several at once, and the same as the models."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest
from alembic import command

from infra.database import Database, DatabaseError
from infra.database.migration import configuration

_MIGRATE = """
import asyncio, sys
from infra.database import Database

async def main():
    database = Database.open(sys.argv[1])
    await database.migrate()
    await database.ping()
    await database.close()

asyncio.run(main())
"""


async def test_migrates_from_nothing_and_again(new_url: Callable[[], str]) -> None:
    database = Database.open(new_url())
    await database.migrate()
    await database.migrate()
    await database.ping()
    await database.close()


async def test_models_and_migrations_agree(new_url: Callable[[], str]) -> None:
    """`alembic check` finds nothing to generate."""
    database = Database.open(new_url())
    await database.migrate()
    engine = database._backend.blocking_engine(timedelta(seconds=5))
    with engine.begin() as connection:
        await asyncio.to_thread(command.check, configuration(connection))
    engine.dispose()
    await database.close()


async def test_two_databases_of_one_process_migrate_at_once(new_url: Callable[[], str]) -> None:
    urls = [new_url()] * 2 + [new_url()]
    databases = [Database.open(url) for url in urls]
    await asyncio.gather(*(database.migrate() for database in databases))
    for database in databases:
        await database.ping()
        await database.close()


async def test_processes_that_start_at_once_migrate_once(new_url: Callable[[], str]) -> None:
    url = new_url()
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", _MIGRATE, url, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    for process in processes:
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors.decode()


@pytest.mark.parametrize("url", ["", "mysql://x/y", "sqlite+aiosqlite://", "sqlite:///:memory:", "nonsense"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(DatabaseError, match="CARILLON_DATABASE_URL"):
        Database.open(url)
