"""Concurrency groups as lists show them: those that were given a limit, and those that jobs name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from infra.database.engine import Database
from infra.database.page import Page, decode_name, encode_cursor
from infra.database.schema import GROUPED, groups, jobs
from infra.database.types import clean
from infra.database.upsert import insert

Names = Sequence[str]

_ORDER = "name"
_GROUPED = sa.text(GROUPED)
FIRST_LIMIT = 1
"""Of a group that nobody gave one."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    name: str
    limit: int
    members: int
    """Jobs that name it."""


class GroupIndex:
    """The table ``groups``, and the column of ``jobs``. Raises DatabaseUnavailable without an answer in time.

    The truth about limit, holders and queue is the group's workflow.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, tenant: str, *, limit: int = 50, cursor: str | None = None) -> Page[StoredGroup]:
        """By name. Raises BadCursor."""
        query = _names(tenant)
        if cursor is not None:
            query = query.where(query.selected_columns.name > decode_name(cursor, _ORDER))
        query = query.order_by("name").limit(limit + 1)

        def work(connection: sa.Connection) -> Page[StoredGroup]:
            names: Names = connection.execute(query).scalars().all()
            found = _of(connection, tenant, names[:limit])
            if len(names) <= limit:
                return Page(found, None)
            return Page(found, encode_cursor(_ORDER, name=names[limit - 1]))

        return await self._database.read(work)

    async def get(self, tenant: str, name: str) -> StoredGroup | None:
        """None: no job names it, and it was given no limit."""
        query = _names(tenant)
        query = query.where(query.selected_columns.name == clean(name))

        def work(connection: sa.Connection) -> StoredGroup | None:
            names: Names = connection.execute(query).scalars().all()
            return next(iter(_of(connection, tenant, names)), None)

        return await self._database.read(work)

    async def members(self, tenant: str, name: str, *, limit: int) -> Sequence[str]:
        """The first ids of the jobs that name it."""
        query = (
            sa.select(jobs.c.job)
            .where(jobs.c.tenant == clean(tenant), jobs.c.group_name == clean(name), _GROUPED)
            .order_by(jobs.c.job)
            .limit(limit)
        )
        return await self._database.read(lambda connection: list(connection.execute(query).scalars()))

    async def limited(self, tenant: str) -> int:
        """How many groups were given a limit."""
        query = sa.select(sa.func.count()).where(groups.c.tenant == clean(tenant))
        return await self._database.read(lambda connection: connection.execute(query).scalar_one())

    async def put(self, tenant: str, name: str, limit: int, changed_at: datetime) -> None:
        """Store a limit, unless a later one is there."""

        def work(connection: sa.Connection) -> None:
            statement = insert(connection.dialect.name, groups)
            new = statement.excluded
            statement = statement.on_conflict_do_update(
                index_elements=["tenant", "name"],
                set_={"limit": new["limit"], "changed_at": new["changed_at"]},
                where=groups.c.changed_at <= new["changed_at"],
            )
            row = {"tenant": clean(tenant), "name": clean(name), "limit": limit, "changed_at": changed_at}
            connection.execute(statement, row)

        await self._database.write(work)

    async def delete(self, tenant: str, name: str) -> None:
        statement = sa.delete(groups).where(groups.c.tenant == clean(tenant), groups.c.name == clean(name))
        await self._database.write(lambda connection: connection.execute(statement))


def _names(tenant: str) -> sa.Select[Any]:
    """All names of the tenant's groups, each once."""
    limited = sa.select(groups.c.name).where(groups.c.tenant == clean(tenant))
    named = sa.select(jobs.c.group_name.label("name")).where(jobs.c.tenant == clean(tenant), _GROUPED)
    all_of_them = limited.union(named).subquery("all_of_them")
    return sa.select(all_of_them.c.name)


def _of(connection: sa.Connection, tenant: str, names: Names) -> list[StoredGroup]:
    limited = connection.execute(
        sa.select(groups.c.name, groups.c.limit).where(
            groups.c.tenant == clean(tenant), groups.c.name.in_(names)
        )
    )
    limits: dict[str, int] = {row[0]: row[1] for row in limited}
    counted = connection.execute(
        sa.select(jobs.c.group_name, sa.func.count())
        .where(jobs.c.tenant == clean(tenant), jobs.c.group_name.in_(names), _GROUPED)
        .group_by(jobs.c.group_name)
    )
    members: dict[str, int] = {row[0]: row[1] for row in counted}
    return [StoredGroup(name, limits.get(name, FIRST_LIMIT), members.get(name, 0)) for name in names]
