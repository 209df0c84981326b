"""The index of dead letters: those that are open are listed, newest occurrence first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from infra.database.engine import Database
from infra.database.page import Page, decode_instant, encode_cursor
from infra.database.schema import CLOSED_LETTERS, OPEN_LETTERS, dead_letters
from infra.database.types import clean
from infra.database.upsert import Upsert, insert
from workflows.contracts.dead_letter import LetterRow

_ORDER = "-scheduled_time"
_ALIVE = sa.text(OPEN_LETTERS)
CLOSED_KEPT = timedelta(days=30)
"""Rows of letters that are closed stay as long as the history."""
FORGET_AT_ONCE = 100
_KEYED = ("tenant", "key")


class DeadLetters:
    """The table ``dead_letters``. Raises DatabaseUnavailable without an answer in time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, row: LetterRow) -> None:
        """Store one row, unless a newer one is there; a closed one takes some old closed ones along."""

        def work(connection: sa.Connection) -> None:
            columns = _columns(row)
            connection.execute(_statement(connection.dialect.name), columns)
            if columns["closed"]:
                _forget(connection, row.tenant, row.changed_at - CLOSED_KEPT)

        await self._database.write(work)

    async def list(
        self,
        tenant: str,
        *,
        job: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        opened_until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[LetterRow]:
        """Open ones and those being redriven; ``job`` is an id, ``since <= scheduled_time < until``.

        Newest occurrence first, by key among equals. ``opened_until``: not those opened later. Raises
        BadCursor.
        """
        query = _matching(tenant, job, since, until, opened_until)
        table = dead_letters.c
        if cursor is not None:
            scheduled_time, key = decode_instant(cursor, _ORDER)
            # The first condition bounds the scan of the index, the second leaves out what was given.
            query = query.where(
                table.scheduled_time <= scheduled_time,
                sa.or_(table.scheduled_time < scheduled_time, table.key > key),
            )
        query = query.order_by(table.scheduled_time.desc(), table.key).limit(limit + 1)

        def work(connection: sa.Connection) -> Page[LetterRow]:
            rows = [_row(found) for found in connection.execute(query)]
            if len(rows) <= limit:
                return Page(rows, None)
            last = rows[limit - 1]
            return Page(rows[:limit], encode_cursor(_ORDER, name=last.key, instant=last.scheduled_time))

        return await self._database.read(work)

    async def count(
        self,
        tenant: str,
        *,
        job: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        opened_until: datetime | None = None,
    ) -> int:
        """How many :meth:`list` would give."""
        found = _matching(tenant, job, since, until, opened_until).subquery()
        query = sa.select(sa.func.count()).select_from(found)
        return await self._database.read(lambda connection: connection.execute(query).scalar_one())

    async def get(self, tenant: str, key: str) -> LetterRow | None:
        """The last letter of this key, closed ones included."""
        table = dead_letters.c
        query = sa.select(*table).where(table.tenant == clean(tenant), table.key == clean(key))

        def work(connection: sa.Connection) -> LetterRow | None:
            found = connection.execute(query).one_or_none()
            return None if found is None else _row(found)

        return await self._database.read(work)

    async def beyond(self, tenant: str, bound: int, *, limit: int) -> Sequence[LetterRow]:
        """Of a tenant with more open letters than ``bound`` those opened first."""
        table = dead_letters.c
        query = (
            sa.select(*table)
            .where(table.tenant == clean(tenant), _ALIVE)
            .order_by(table.opened_at.desc(), table.key)
            .offset(bound)
            .limit(limit)
        )
        return await self._database.read(lambda connection: [_row(one) for one in connection.execute(query)])


def _matching(
    tenant: str,
    job: str | None,
    since: datetime | None,
    until: datetime | None,
    opened_until: datetime | None,
) -> sa.Select[Any]:
    table = dead_letters.c
    query = sa.select(*table).where(table.tenant == clean(tenant), _ALIVE)
    if job is not None:
        query = query.where(table.job == clean(job))
    if since is not None:
        query = query.where(table.scheduled_time >= since)
    if until is not None:
        query = query.where(table.scheduled_time < until)
    if opened_until is not None:
        query = query.where(table.opened_at <= opened_until)
    return query


def _forget(connection: sa.Connection, tenant: str, before: datetime) -> None:
    table = dead_letters.c
    old = (
        sa.select(table.key)
        .where(table.tenant == tenant, sa.text(CLOSED_LETTERS), table.changed_at < before)
        .limit(FORGET_AT_ONCE)
    )
    keys = connection.execute(old).scalars().all()
    if keys:
        connection.execute(sa.delete(dead_letters).where(table.tenant == tenant, table.key.in_(keys)))


def _columns(row: LetterRow) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in LetterRow.model_fields}
    return columns | {"closed": row.status not in ("open", "redriving")}


def _row(found: sa.Row[Any]) -> LetterRow:
    return LetterRow.model_validate(dict(found._mapping))


@cache
def _statement(dialect: str) -> Upsert:
    """A letter that was opened later is another one of the same key; else the newer change stands."""
    fresh = insert(dialect, dead_letters)
    old, new = dead_letters.c, fresh.excluded
    newer = sa.or_(
        new.opened_at > old.opened_at, sa.and_(new.opened_at == old.opened_at, new.change > old.change)
    )
    return fresh.on_conflict_do_update(
        index_elements=[old[name] for name in _KEYED],
        set_={column.name: new[column.name] for column in old if column.name not in _KEYED},
        where=newer,
    )
