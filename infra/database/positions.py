"""Where a change stands among all changes: a number that readers can follow.

A reader that has seen everything up to :func:`bound` never misses a change later. In PostgreSQL the
number is that of the writing transaction, and the bound lies before the oldest one that still runs;
SQLite has one writer at a time, which counts.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from infra.database.schema import change_position


def advance(connection: sa.Connection) -> None:
    """Begin a new position in this transaction, for what it writes from here on."""
    if connection.dialect.name == "sqlite":
        connection.execute(_COUNT)


def position(dialect: str) -> sa.ColumnElement[Any]:
    """The position of the transaction, inside a statement that writes."""
    if dialect == "sqlite":
        return sa.select(change_position.c.value).scalar_subquery()
    return _number(sa.func.pg_current_xact_id())


def bound(connection: sa.Connection) -> int:
    """Everything up to here is settled: no change will come to stand at or before it any more."""
    if connection.dialect.name == "sqlite":
        return int(connection.scalar(_SQLITE_BOUND) or 0)
    return int(connection.scalar(_POSTGRES_BOUND) or 0)


def _number(xid: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """PostgreSQL casts a transaction's number to a text only."""
    return sa.cast(sa.cast(xid, sa.Text), sa.BigInteger)


_COUNT = sa.update(change_position).values(value=change_position.c.value + 1)
_SQLITE_BOUND = sa.select(change_position.c.value)
_POSTGRES_BOUND = sa.select(_number(sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot())) - 1)
