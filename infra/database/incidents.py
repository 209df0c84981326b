"""Incidents as their workflows write them down, for those who look at what is open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from infra.database.engine import Database
from infra.database.schema import incidents
from infra.database.types import clean
from infra.database.upsert import Upsert, insert
from workflows.contracts.incident import FORGOTTEN_AFTER, Incident

KEPT_FOR = FORGOTTEN_AFTER
"""How long the row of an incident that is over stays."""
_IDENTITY = ("tenant", "id")
_NAMES = ("tenant", "id", "kind", "job", "key")


class IncidentLog:
    """The table ``incidents``. Raises DatabaseUnavailable without an answer in time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def store(self, rows: Sequence[Incident]) -> None:
        """Write rows down, unless newer ones are there; what was over long before them goes."""
        await self._database.write(lambda connection: _store(connection, rows))

    async def found(self, incident: Incident) -> tuple[Incident, int]:
        """Write it down; the newest row of it, and how many others of its tenant are open."""

        def work(connection: sa.Connection) -> tuple[Incident, int]:
            _store(connection, [incident])
            mine = (incidents.c.tenant == incident.tenant, incidents.c.id == incident.id)
            row = connection.execute(sa.select(*incidents.c).where(*mine)).one()
            others = connection.scalar(
                sa.select(sa.func.count()).where(
                    incidents.c.tenant == incident.tenant, _OPEN, incidents.c.id != incident.id
                )
            )
            return _read(row), others or 0

        return await self._database.write(work)

    async def open(self, tenant: str, limit: int) -> list[Incident]:
        """The open ones, newest first."""
        query = (
            sa.select(*incidents.c)
            .where(incidents.c.tenant == clean(tenant), _OPEN)
            .order_by(incidents.c.opened_at.desc(), incidents.c.id)
            .limit(limit)
        )
        return await self._database.read(
            lambda connection: [_read(row) for row in connection.execute(query).all()]
        )

    async def count_open(self, tenant: str) -> int:
        query = sa.select(sa.func.count()).where(incidents.c.tenant == clean(tenant), _OPEN)
        return await self._database.read(lambda connection: connection.scalar(query) or 0)


_OPEN = sa.text("closed_at IS NULL")


def _store(connection: sa.Connection, rows: Sequence[Incident]) -> None:
    if not rows:
        return
    connection.execute(_statement(connection.dialect.name), [_columns(row) for row in rows])
    for row in {row.tenant: row for row in rows}.values():
        connection.execute(_FORGET, {"of_tenant": row.tenant, "before": row.last_at - KEPT_FOR})


_FORGET = sa.delete(incidents).where(
    incidents.c.tenant == sa.bindparam("of_tenant"), incidents.c.closed_at < sa.bindparam("before")
)


@cache
def _statement(dialect: str) -> Upsert:
    new = insert(dialect, incidents)
    return new.on_conflict_do_update(
        index_elements=[incidents.c[name] for name in _IDENTITY],
        set_={
            column.name: new.excluded[column.name] for column in incidents.c if column.name not in _IDENTITY
        },
        where=incidents.c.change < new.excluded.change,
    )


def _columns(row: Incident) -> dict[str, Any]:
    columns = row.model_dump()
    return columns | {name: clean(columns[name]) for name in _NAMES if columns[name] is not None}


def _read(row: sa.Row[Any]) -> Incident:
    return Incident.model_validate(dict(row._mapping))
