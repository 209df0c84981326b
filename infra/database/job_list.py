"""The list of a tenant's jobs, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from infra.database.page import Page, decode_instant, decode_name, encode_cursor
from infra.database.schema import LIVE, jobs
from infra.database.stored_job import StoredJob, fold, from_row, label_needle
from infra.database.types import clean
from workflows.contracts.records import Outcome

JobSort = Literal["id", "-created_at"]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a list is narrowed to; several conditions must all hold."""

    status: Sequence[Literal["active", "paused", "completed"]] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    """A kind of target, or a part of its address, literally."""
    outcome: Sequence[Outcome] | None = None
    """Of the last execution."""
    q: str | None = None
    """A part of id or description, literally, in any case."""
    created_until: datetime | None = None
    group: str | None = None
    """The concurrency group that the job names."""


def page_of_jobs(
    connection: sa.Connection,
    tenant: str,
    filters: JobFilter,
    *,
    sort: JobSort,
    limit: int,
    cursor: str | None,
) -> Page[StoredJob]:
    """Jobs that exist: neither reserved nor deleted. Raises BadCursor."""
    query = _filtered(connection, tenant, filters)
    query = _by_id(query, cursor) if sort == "id" else _by_age(query, cursor)
    rows = connection.execute(query.limit(limit + 1)).all()
    items = [from_row(row) for row in rows[:limit]]
    if len(rows) <= limit or not items:
        return Page(items, None)
    last = items[-1]
    instant = None if sort == "id" else last.created_at
    return Page(items, encode_cursor(sort, name=last.job, instant=instant))


def count_of_jobs(connection: sa.Connection, tenant: str, filters: JobFilter) -> int:
    """How many jobs the whole list would hold."""
    query = _filtered(connection, tenant, filters).with_only_columns(sa.func.count())
    return connection.execute(query).scalar_one()


def _by_id(query: sa.Select[tuple[object, ...]], cursor: str | None) -> sa.Select[tuple[object, ...]]:
    if cursor is not None:
        query = query.where(jobs.c.job > decode_name(cursor, "id"))
    return query.order_by(jobs.c.job)


def _by_age(query: sa.Select[tuple[object, ...]], cursor: str | None) -> sa.Select[tuple[object, ...]]:
    if cursor is not None:
        created_at, job = decode_instant(cursor, "-created_at")
        # The first condition bounds the scan of the index, the second leaves out what was given.
        query = query.where(
            jobs.c.created_at <= created_at,
            sa.or_(jobs.c.created_at < created_at, jobs.c.job > job),
        )
    return query.order_by(jobs.c.created_at.desc(), jobs.c.job)


def _filtered(connection: sa.Connection, tenant: str, filters: JobFilter) -> sa.Select[tuple[object, ...]]:
    query = sa.select(*jobs.c).where(
        jobs.c.tenant == clean(tenant), sa.text(LIVE), jobs.c.status != sa.literal_column("'reserved'")
    )
    if filters.status is not None:
        query = query.where(jobs.c.status.in_(filters.status))
    query = query.where(*definition_conditions(connection, filters.labels, filters.target))
    if filters.outcome is not None:
        query = query.where(jobs.c.last_outcome.in_(filters.outcome))
    if filters.created_until is not None:
        query = query.where(jobs.c.created_at <= filters.created_until)
    if filters.group is not None:
        query = query.where(jobs.c.group_name == clean(filters.group))
    if filters.q:
        part = fold(filters.q)
        query = query.where(
            sa.or_(_holds(connection, jobs.c.job, part), _holds(connection, jobs.c.description, part))
        )
    return query


def definition_conditions(
    connection: sa.Connection, labels: Mapping[str, str], target: str | None
) -> list[sa.ColumnElement[bool]]:
    """What holds of the rows of ``jobs`` with these labels and this target (JobFilter)."""
    found = [_holds(connection, jobs.c.labels, label_needle(name, value)) for name, value in labels.items()]
    if target is not None:
        part = clean(target)
        found.append(sa.or_(jobs.c.target_type == part, _holds(connection, jobs.c.target_address, part)))
    return found


def _holds(connection: sa.Connection, column: sa.ColumnElement[str], part: str) -> sa.ColumnElement[bool]:
    """A literal substring: no wildcards to escape, and the same about case in both databases."""
    find = sa.func.instr if connection.dialect.name == "sqlite" else sa.func.strpos
    return find(column, sa.literal(part, sa.Text)) > 0
