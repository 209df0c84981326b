"""What has changed since: executions and jobs of a tenant in the order in which they were written.

Each row is told as it is now, so one that changed twice between two readings is told once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from infra.database import positions
from infra.database.engine import Database
from infra.database.errors import BadCursor
from infra.database.executions import StoredExecution, with_attempts
from infra.database.schema import executions, jobs
from infra.database.stored_job import StoredJob, from_row
from infra.database.types import clean

Kind = Literal["execution", "job"]
_LAST_NAME = "~"
"""Sorts behind every ref and every key: both begin with a letter or a digit."""
_MAX_ID = 1000


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A change's place in the feed: by position, executions first, then by key or ref."""

    position: int
    kind: Kind
    name: str

    @classmethod
    def behind(cls, position: int) -> Place:
        """Behind everything that was written at this position."""
        return cls(position, "job", _LAST_NAME)

    def text(self) -> str:
        """URL-safe; :meth:`parse` reads it back."""
        fields = json.dumps([self.position, self.kind, self.name], separators=(",", ":"))
        return base64.urlsafe_b64encode(fields.encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises BadCursor for what is no place."""
        try:
            if len(text) > _MAX_ID:
                raise ValueError("too long")
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            position, kind, name = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            if kind not in ("execution", "job") or not isinstance(name, str) or not name.isprintable():
                raise ValueError("no place")
            if type(position) is not int or not 0 <= position < 2**63:
                raise ValueError("no position")
        except (ValueError, TypeError, RecursionError):
            raise BadCursor(f"{text[:40]!r} is the id of no event") from None
        return cls(position, kind, name)


@dataclass(frozen=True, slots=True)
class Change:
    place: Place
    what: StoredExecution | StoredJob


@dataclass(frozen=True, slots=True)
class Reading:
    """``upto`` is where the next reading begins; ``more``: there was no room for all."""

    changes: Sequence[Change]
    upto: Place
    more: bool


class Feed:
    """Reads ``executions`` and ``jobs`` by position. Raises DatabaseUnavailable without an answer in time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def present(self) -> Place:
        """Behind everything that is settled now."""
        return Place.behind(await self._database.read(positions.bound))

    async def heads(self, tenants: Collection[str]) -> dict[str, int]:
        """The position of the last change of each tenant; one index entry is read for each table."""

        def work(connection: sa.Connection) -> dict[str, int]:
            found = {}
            for tenant in tenants:
                row = connection.execute(_HEAD, {"in_tenant": tenant}).one()
                found[tenant] = max(row[0] or 0, row[1] or 0)
            return found

        return await self._database.read(work)

    async def read(self, tenant: str, after: Place, *, job: str | None = None, limit: int = 100) -> Reading:
        """Changes behind ``after``, in order, of one job id or of all."""
        return await self._database.read(lambda connection: _read(connection, tenant, after, job, limit))


def _read(connection: sa.Connection, tenant: str, after: Place, job: str | None, limit: int) -> Reading:
    bound = positions.bound(connection)
    query = _behind(executions, executions.c.key, "execution", tenant, after, bound, job)
    rows = connection.execute(query.limit(limit + 1)).all()
    changes = [
        Change(Place(row.position, "execution", row.key), stored)
        for stored, row in zip(with_attempts(connection, tenant, rows), rows, strict=True)
    ]
    query = _behind(jobs, jobs.c.ref, "job", tenant, after, bound, job).where(sa.not_(jobs.c.freed))
    changes.extend(
        Change(Place(row.position, "job", row.ref), from_row(row))
        for row in connection.execute(query.limit(limit + 1))
    )
    changes.sort(key=lambda change: change.place)
    more = len(changes) > limit
    upto = changes[limit - 1].place if more else max(after, Place.behind(bound))
    return Reading(changes[:limit], upto, more)


def _behind(
    table: sa.Table,
    name: sa.ColumnElement[str],
    kind: Kind,
    tenant: str,
    after: Place,
    bound: int,
    job: str | None,
) -> sa.Select[Any]:
    """Rows of this kind behind ``after``: of its own position only what sorts later."""
    at = table.c.position
    first = after.position if kind >= after.kind else after.position + 1
    query = sa.select(*table.c).where(table.c.tenant == tenant, at >= first, at <= bound)
    if kind == after.kind:
        query = query.where(sa.or_(at > after.position, name > after.name))
    if job is not None:
        query = query.where(table.c.job == clean(job))
    return query.order_by(at, name)


def _head_statement() -> sa.Select[Any]:
    tenant: sa.BindParameter[str] = sa.bindparam("in_tenant")
    return sa.select(
        *(
            sa.select(sa.func.max(table.c.position)).where(table.c.tenant == tenant).scalar_subquery()
            for table in (executions, jobs)
        )
    )


_HEAD = _head_statement()
