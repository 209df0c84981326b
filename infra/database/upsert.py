"""INSERT … ON CONFLICT, which both databases spell alike but SQLAlchemy keeps apart."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

Upsert = postgresql.Insert | sqlite.Insert


def insert(dialect: str, table: sa.Table) -> Upsert:
    """An INSERT that has ``on_conflict_do_update``, ``excluded`` and the like."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
