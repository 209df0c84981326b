"""The audit log: who changed what, when, from which revision to which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from infra.database.engine import Database
from infra.database.page import Page, decode_instant, encode_cursor
from infra.database.schema import audit
from infra.database.types import clean
from infra.database.upsert import Upsert, insert

_ORDER = "-at"
_TEXTS = ("tenant", "id", "by", "operation", "job", "request_id")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One accepted change. ``job`` is None for one that concerns no single job.

    A revision is None where there is none: before a creation, after a deletion. Entries of one ``id``
    are one entry, so that what is written twice is there once.
    """

    tenant: str
    id: str
    at: datetime
    by: str
    operation: str
    job: str | None
    from_revision: int | None
    to_revision: int | None
    request_id: str


class AuditLog:
    """The table ``audit``. Raises DatabaseUnavailable without an answer in time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        """Store entries in one transaction, those that are there already left as they are."""
        await self._database.write(lambda connection: store(connection, entries))

    async def list(
        self,
        tenant: str,
        *,
        job: str | None = None,
        by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Newest first, by id among equals; ``since <= at < until``. Raises BadCursor."""
        query = sa.select(*audit.c).where(audit.c.tenant == clean(tenant))
        if job is not None:
            query = query.where(audit.c.job == clean(job))
        if by is not None:
            query = query.where(audit.c.by == clean(by))
        if since is not None:
            query = query.where(audit.c.at >= since)
        if until is not None:
            query = query.where(audit.c.at < until)
        if cursor is not None:
            at, last = decode_instant(cursor, _ORDER)
            # The first condition bounds the scan of the index, the second leaves out what was given.
            query = query.where(audit.c.at <= at, sa.or_(audit.c.at < at, audit.c.id > last))
        query = query.order_by(audit.c.at.desc(), audit.c.id).limit(limit + 1)
        return await self._database.read(lambda connection: _page(connection, query, limit))


def creation(
    *, tenant: str, ref: str, job: str, at: datetime, by: str, revision: int, request_id: str
) -> AuditEntry:
    """The entry of a creation; a ref is created once, and so is its entry."""
    return AuditEntry(tenant, creation_id(ref), at, by, "create", job, None, revision, request_id)


def creation_id(ref: str) -> str:
    return f"create-{ref}"


def store(connection: sa.Connection, entries: Iterable[AuditEntry]) -> None:
    """Insert them in the transaction of ``connection``."""
    rows = [_columns(entry) for entry in entries]
    if rows:
        connection.execute(_statement(connection.dialect.name), rows)


def _columns(entry: AuditEntry) -> dict[str, Any]:
    row = asdict(entry)
    return row | {name: clean(row[name]) for name in _TEXTS if row[name] is not None}


@cache
def _statement(dialect: str) -> Upsert:
    return insert(dialect, audit).on_conflict_do_nothing(index_elements=[audit.c.tenant, audit.c.id])


def _page(connection: sa.Connection, query: sa.Select[Any], limit: int) -> Page[AuditEntry]:
    rows = connection.execute(query).all()
    items = [AuditEntry(**row._mapping) for row in rows[:limit]]
    if len(rows) <= limit or not items:
        return Page(items, None)
    return Page(items, encode_cursor(_ORDER, name=items[-1].id, instant=items[-1].at))
