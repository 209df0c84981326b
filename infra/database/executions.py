"""The history of executions, newest first, each with its attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from infra.database import records
from infra.database.engine import Database
from infra.database.job_list import definition_conditions
from infra.database.page import Page, decode_instant, encode_cursor
from infra.database.schema import attempts, executions, jobs
from infra.database.types import clean
from workflows.contracts.names import execution_id, rerun_number, rerun_of
from workflows.contracts.records import AttemptRow, ExecutionRow, Outcome, Record, Trigger

_ORDER = "-scheduled_time"


@dataclass(frozen=True, slots=True)
class StoredExecution:
    """One execution of a job's generation ``ref``, attempts ascending."""

    tenant: str
    ref: str
    job: str
    row: ExecutionRow
    attempts: tuple[AttemptRow, ...]


class ToldOutcome(NamedTuple):
    """The outcome of one execution, and the ``seq`` of the word that says so."""

    key: str
    outcome: Outcome
    seq: int


class History:
    """The tables ``executions`` and ``attempts``. Raises DatabaseUnavailable without an answer in time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, entries: Sequence[Record]) -> None:
        """Store records in one transaction, whatever their order and however often."""
        await self._database.write(lambda connection: records.write(connection, entries))

    async def list_executions(
        self,
        tenant: str,
        ref: str | None = None,
        *,
        job: str | None = None,
        labels: Mapping[str, str] | None = None,
        target: str | None = None,
        outcome: Sequence[Outcome] | None = None,
        trigger: Sequence[Trigger] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[StoredExecution]:
        """Of one generation of a job, or of all the tenant's jobs; ``since <= scheduled_time < until``.

        ``job`` is an id, all its generations; ``labels`` and ``target`` are those of the definition that
        the generation has now, or had last. Newest first, by key among equals. Raises BadCursor.
        """
        query = sa.select(*executions.c).where(executions.c.tenant == clean(tenant))
        if ref is not None:
            query = query.where(executions.c.ref == clean(ref))
        if outcome is not None:
            query = query.where(executions.c.outcome.in_(outcome))
        if trigger is not None:
            query = query.where(executions.c.trigger.in_(trigger))
        if since is not None:
            query = query.where(executions.c.scheduled_time >= since)
        if until is not None:
            query = query.where(executions.c.scheduled_time < until)
        query = _behind(query, cursor).limit(limit + 1)

        def work(connection: sa.Connection) -> Page[StoredExecution]:
            narrowed = query
            if job is not None:
                narrowed = _of_job(connection, narrowed, tenant, job)
            if labels or target is not None:
                narrowed = narrowed.where(_defined(connection, labels or {}, target))
            return _page(connection, tenant, narrowed, limit)

        return await self._database.read(work)

    async def get_execution(self, tenant: str, key: str) -> StoredExecution | None:
        """The execution of this key with every attempt."""
        query = sa.select(*executions.c).where(
            executions.c.tenant == clean(tenant), executions.c.key == clean(key)
        )
        page = await self._database.read(lambda connection: _page(connection, tenant, query, 1))
        return page.items[0] if page.items else None

    async def get_executions(self, tenant: str, keys: Sequence[str]) -> dict[str, StoredExecution]:
        """Those of these keys that there are, by key, each with every attempt."""
        if not keys:
            return {}
        wanted = [clean(key) for key in keys]
        query = sa.select(*executions.c).where(
            executions.c.tenant == clean(tenant), executions.c.key.in_(wanted)
        )
        found = await self._database.read(
            lambda connection: with_attempts(connection, tenant, connection.execute(query).all())
        )
        return {stored.row.key: stored for stored in found}

    async def last_rerun(self, tenant: str, key: str) -> int:
        """The highest number of a rerun of the occurrence behind ``key``; 0: there is none."""
        first, behind = f"{rerun_of(key)}+r", f"{rerun_of(key)}+s"
        query = (
            sa.select(executions.c.key)
            .where(
                executions.c.tenant == clean(tenant),
                executions.c.key >= clean(first),
                executions.c.key < clean(behind),
            )
            .order_by(sa.func.length(executions.c.key).desc(), executions.c.key.desc())
            .limit(1)
        )
        found = await self._database.read(lambda connection: connection.execute(query).scalar_one_or_none())
        return 0 if found is None else rerun_number(found)

    async def outcomes(
        self, tenant: str, ref: str, first: datetime, last: datetime, *, succeeded: bool = False
    ) -> list[ToldOutcome]:
        """What became of a job's occurrences scheduled in ``[first, last]``, whatever ran them.

        ``succeeded``: successes only. Manual runs are left out: theirs is no occurrence of the schedule.
        """
        query = sa.select(executions.c.key, executions.c.outcome, executions.c.seq).where(
            executions.c.tenant == clean(tenant),
            executions.c.ref == clean(ref),
            executions.c.scheduled_time >= first,
            executions.c.scheduled_time <= last,
            executions.c.trigger != "manual",
        )
        if succeeded:
            query = query.where(executions.c.outcome == "succeeded")

        def work(connection: sa.Connection) -> list[ToldOutcome]:
            return [ToldOutcome(row.key, row.outcome, row.seq) for row in connection.execute(query)]

        return await self._database.read(work)

    async def forget(self, tenant: str, before: datetime, limit: int = 1000) -> int:
        """Remove up to ``limit`` executions scheduled before this instant, with their attempts; how many."""

        def work(connection: sa.Connection) -> int:
            oldest = (
                sa.select(executions.c.key)
                .where(executions.c.tenant == tenant, executions.c.scheduled_time < before)
                .order_by(executions.c.scheduled_time)
                .limit(limit)
            )
            keys = connection.execute(oldest).scalars().all()
            for table in (attempts, executions):
                connection.execute(sa.delete(table).where(table.c.tenant == tenant, table.c.key.in_(keys)))
            return len(keys)

        return await self._database.write(work)


def _of_job(connection: sa.Connection, query: sa.Select[Any], tenant: str, job: str) -> sa.Select[Any]:
    """By the refs of its generations, mostly one: so the index of a job's executions gives the order."""
    known = sa.select(jobs.c.ref).where(jobs.c.tenant == clean(tenant), jobs.c.job == clean(job))
    refs = connection.execute(known).scalars().all()
    return query.where(executions.c.ref == refs[0] if len(refs) == 1 else executions.c.ref.in_(refs))


def _defined(
    connection: sa.Connection, labels: Mapping[str, str], target: str | None
) -> sa.ColumnElement[bool]:
    """The generation's row has these labels and this target."""
    same = (
        jobs.c.tenant == executions.c.tenant,
        jobs.c.job == executions.c.job,
        jobs.c.ref == executions.c.ref,
    )
    return sa.exists().where(*same, *definition_conditions(connection, labels, target))


def _behind(query: sa.Select[Any], cursor: str | None) -> sa.Select[Any]:
    if cursor is not None:
        scheduled_time, key = decode_instant(cursor, _ORDER)
        # The first condition bounds the scan of the index, the second leaves out what was given.
        query = query.where(
            executions.c.scheduled_time <= scheduled_time,
            sa.or_(executions.c.scheduled_time < scheduled_time, executions.c.key > key),
        )
    return query.order_by(executions.c.scheduled_time.desc(), executions.c.key)


def _page(connection: sa.Connection, tenant: str, query: sa.Select[Any], limit: int) -> Page[StoredExecution]:
    rows = connection.execute(query).all()
    items = with_attempts(connection, tenant, rows[:limit])
    if len(rows) <= limit or not items:
        return Page(items, None)
    last = items[-1].row
    return Page(items, encode_cursor(_ORDER, name=last.key, instant=last.scheduled_time))


def with_attempts(
    connection: sa.Connection, tenant: str, rows: Sequence[sa.Row[Any]]
) -> list[StoredExecution]:
    """Whole rows of ``executions`` of one tenant, each with its attempts."""
    told = _attempts(connection, tenant, [row.key for row in rows])
    return [
        StoredExecution(row.tenant, row.ref, row.job, _execution(row), tuple(told.get(row.key, ())))
        for row in rows
    ]


def _attempts(connection: sa.Connection, tenant: str, keys: list[str]) -> dict[str, list[AttemptRow]]:
    if not keys:
        return {}
    query = (
        sa.select(*attempts.c)
        .where(attempts.c.tenant == tenant, attempts.c.key.in_(keys))
        .order_by(attempts.c.key, attempts.c.attempt)
    )
    found: dict[str, list[AttemptRow]] = {}
    for row in connection.execute(query):
        fields = {name: value for name, value in row._mapping.items() if name not in ("tenant", "key")}
        attempt = AttemptRow(execution_id=execution_id(row.key, row.attempt), **fields)
        found.setdefault(row.key, []).append(attempt)
    return found


def _execution(row: sa.Row[Any]) -> ExecutionRow:
    return ExecutionRow.model_validate(dict(row._mapping))
