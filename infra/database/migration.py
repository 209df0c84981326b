"""Bringing the schema up to date with Alembic, from an installed package too."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from infra.database.errors import DatabaseUnavailable

_ADVISORY_LOCK = 0x6361_7269_6C6C
"""Any number that no other program on the same database uses."""

_one_at_a_time = threading.Lock()
"""Alembic keeps the migration that runs in module globals."""


def configuration(connection: sa.Connection) -> Config:
    """Alembic's configuration for the packaged migrations on an open connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: sa.Engine, timeout: timedelta) -> None:
    """Apply what is missing in one transaction, under a lock; blocks for at most ``timeout`` or so.

    ``engine`` begins write transactions at once (SQLite: IMMEDIATE), which is the lock there.
    """
    if not _one_at_a_time.acquire(timeout=timeout.total_seconds()):
        raise DatabaseUnavailable("Another migration in this process does not end; see what it waits for.")
    try:
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            config = configuration(connection)
            head = ScriptDirectory.from_config(config).get_current_head()
            if MigrationContext.configure(connection).get_current_revision() != head:
                command.upgrade(config, "head")
    finally:
        _one_at_a_time.release()
