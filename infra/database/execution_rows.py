"""Rows of executions and attempts on their way into the history."""

from __future__ import annotations

import math
from functools import cache
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from infra.database import positions
from infra.database.schema import attempts, executions
from infra.database.types import to_microseconds
from infra.database.upsert import Upsert, insert
from workflows.contracts.names import job_of
from workflows.contracts.records import ALIVE, FIRED_PHASE, AttemptRow, ExecutionRow, Record, sequence
from workflows.domain.history import STOPPED

_FOLLOW_SEQ = ("fires_at", "trigger", "outcome", "seq", "ended_at", "reason", "revision")
"""Columns of an execution that the newest word on it decides."""


class MergedRows:
    """Executions and attempts of a batch, one row a key."""

    def __init__(self) -> None:
        self._executions: dict[tuple[str, str], tuple[str, ExecutionRow]] = {}
        self._attempts: dict[tuple[str, str, int], AttemptRow] = {}

    def add(self, record: Record) -> None:
        if record.execution is not None:
            place = (record.tenant, record.execution.key)
            known = self._executions.get(place)
            row = record.execution if known is None else merge(known[1], record.execution)
            self._executions[place] = (record.ref, row)
        if record.attempt is not None:
            key = record.attempt.execution_id.rpartition(":")[0]
            where = (record.tenant, key, record.attempt.attempt)
            other = self._attempts.get(where)
            self._attempts[where] = record.attempt if other is None else _later(other, record.attempt)

    def execution_columns(self) -> list[dict[str, Any]]:
        return [
            {
                "tenant": tenant,
                "key": key,
                "ref": ref,
                "job": job_of(ref)[0],
                "scheduled_time": row.scheduled_time,
                "fires_at": row.fires_at,
                "trigger": row.trigger,
                "outcome": row.outcome,
                "seq": row.seq,
                "started_at": row.started_at,
                "ended_at": row.ended_at,
                "lateness_ms": row.lateness_ms,
                "reason": row.reason,
                "count": row.count,
                "last_scheduled_time": row.last_scheduled_time,
                "revision": row.revision,
            }
            for (tenant, key), (ref, row) in sorted(self._executions.items(), key=itemgetter(0))
        ]

    def attempt_columns(self) -> list[dict[str, Any]]:
        return [
            {
                "tenant": tenant,
                "key": key,
                "attempt": attempt,
                "delivery": row.delivery,
                "outcome": row.outcome,
                "seq": row.seq,
                "started_at": row.started_at,
                "ended_at": row.ended_at,
                "status_code": row.status_code,
                "error": row.error,
                "answer": row.answer,
                "worker": row.worker,
                "revision": row.revision,
            }
            for (tenant, key, attempt), row in sorted(self._attempts.items(), key=itemgetter(0))
        ]

    def unended_columns(self) -> list[dict[str, Any]]:
        """Places of executions that may have an attempt without an end, though they have one themselves."""
        places = {
            (tenant, key) for (tenant, key, _), row in self._attempts.items() if row.outcome == "running"
        }
        for (tenant, key), (_, row) in self._executions.items():
            first = self._attempts.get((tenant, key, 1))
            told = first is not None and first.outcome != "running" and row.seq < sequence(2, 0, 0)
            if row.outcome not in ALIVE and not told:
                places.add((tenant, key))
        return [{"p_tenant": tenant, "p_key": key} for tenant, key in sorted(places)]


def merge(known: ExecutionRow, other: ExecutionRow) -> ExecutionRow:
    """Two words on one execution, in either order: the rule of :func:`_execution_statement`."""
    ordered = sorted((known, other), key=lambda row: (row.seq, row.count))
    oldest, newest = ordered if (known.seq, known.count) != (other.seq, other.count) else (other, known)
    first = oldest if _fired(oldest) < _fired(newest) else newest
    lasts = [row.last_scheduled_time for row in (known, other) if row.last_scheduled_time is not None]
    return newest.model_copy(
        update={
            "started_at": first.started_at,
            "lateness_ms": first.lateness_ms,
            "count": max(known.count, other.count),
            "last_scheduled_time": max(lasts, default=None),
        }
    )


def _later(known: AttemptRow, other: AttemptRow) -> AttemptRow:
    """Two words on one attempt, in either order: the rule of :func:`_attempt_statement`."""
    older, newer = (known, other) if other.seq > known.seq else (other, known)
    return newer.model_copy(update={"started_at": newer.started_at or older.started_at})


def _fired(row: ExecutionRow) -> tuple[float, float]:
    """Orders first firings; one that is not known comes last."""
    return (
        math.inf if row.started_at is None else to_microseconds(row.started_at),
        math.inf if row.lateness_ms is None else row.lateness_ms,
    )


def write(connection: sa.Connection, rows: MergedRows) -> None:
    """Upsert them in two statements; a third ends attempts that nobody will end any more."""
    if columns := rows.execution_columns():
        positions.advance(connection)
        connection.execute(_execution_statement(connection.dialect.name), columns)
    if columns := rows.attempt_columns():
        connection.execute(_attempt_statement(connection.dialect.name), columns)
    if columns := rows.unended_columns():
        connection.execute(_END, columns)


@cache
def _execution_statement(dialect: str) -> Upsert:
    """By seq (a stretch that grew: by count), but the first firing and the largest count stay."""
    fresh = insert(dialect, executions).values(position=positions.position(dialect))
    old, new = executions.c, fresh.excluded
    newer = sa.or_(new.seq > old.seq, sa.and_(new.seq == old.seq, new["count"] > old["count"]))
    first = sa.and_(
        new.started_at.is_not(None),
        sa.or_(
            old.started_at.is_(None),
            new.started_at < old.started_at,
            sa.and_(
                new.started_at == old.started_at,
                sa.or_(
                    new.lateness_ms < old.lateness_ms,
                    sa.and_(old.lateness_ms.is_(None), new.lateness_ms.is_not(None)),
                ),
            ),
        ),
    )
    more = new["count"] > old["count"]
    longer = sa.and_(
        new.last_scheduled_time.is_not(None),
        sa.or_(old.last_scheduled_time.is_(None), new.last_scheduled_time > old.last_scheduled_time),
    )
    chosen: dict[str, sa.ColumnElement[Any]] = {
        name: sa.case((newer, new[name]), else_=old[name]) for name in _FOLLOW_SEQ
    }
    chosen |= {name: sa.case((first, new[name]), else_=old[name]) for name in ("started_at", "lateness_ms")}
    chosen["count"] = sa.case((more, new["count"]), else_=old["count"])
    chosen["last_scheduled_time"] = sa.case((longer, new.last_scheduled_time), else_=old.last_scheduled_time)
    chosen["position"] = new.position
    return fresh.on_conflict_do_update(
        index_elements=[old.tenant, old.key], set_=chosen, where=sa.or_(newer, first, more, longer)
    )


@cache
def _attempt_statement(dialect: str) -> Upsert:
    """By seq; whoever gives up an attempt whose lease was lost does not know when it started."""
    fresh = insert(dialect, attempts)
    keyed = ("tenant", "key", "attempt")
    chosen: dict[str, sa.ColumnElement[Any]] = {
        column.name: fresh.excluded[column.name] for column in attempts.c if column.name not in keyed
    }
    chosen["started_at"] = sa.func.coalesce(fresh.excluded.started_at, attempts.c.started_at)
    return fresh.on_conflict_do_update(
        index_elements=[attempts.c[name] for name in keyed],
        set_=chosen,
        where=fresh.excluded.seq > attempts.c.seq,
    )


def _end_statement() -> sa.Update:
    """What :func:`workflows.domain.history.with_ends` shows, stored: the end of an execution is that of an
    attempt whose last word is that it fired.

    Its ``seq`` stays, so that a better word still counts. One that was ended so is ended anew when its
    execution is, unless that went on long after it: a redrive changes nothing about the attempts before it.
    """
    later = attempts.alias()
    redriven = sa.exists().where(
        later.c.tenant == attempts.c.tenant,
        later.c.key == attempts.c.key,
        later.c.attempt > attempts.c.attempt,
        later.c.started_at >= attempts.c.ended_at,
    )
    place = (executions.c.tenant == sa.bindparam("p_tenant"), executions.c.key == sa.bindparam("p_key"))

    was_last = executions.c.seq < (attempts.c.attempt + 1) * sequence(1, 0, 0)
    stopped = sa.or_(*(executions.c.outcome == one for one in STOPPED))

    def of_execution(value: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
        return sa.select(value).where(*place).scalar_subquery()

    return (
        sa.update(attempts)
        .where(
            attempts.c.tenant == sa.bindparam("p_tenant"),
            attempts.c.key == sa.bindparam("p_key"),
            attempts.c.seq % 10 == FIRED_PHASE,
            sa.or_(attempts.c.ended_at.is_(None), ~redriven),
            sa.exists().where(*place, *(executions.c.outcome != alive for alive in ALIVE)),
        )
        .values(
            outcome=of_execution(sa.case((sa.and_(was_last, stopped), "cancelled"), else_="failed")),
            ended_at=of_execution(executions.c.ended_at),
        )
    )


_END = _end_statement()
