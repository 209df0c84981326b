"""Writing records: in any order, once or twice, with one outcome.

Records of one batch are first merged by the rules that the statements below apply to rows; what is left
has one row a key, in the order of the keys, so that two processes cannot lock each other out. Rows of jobs
that are written twice, for their runs and for their changes, are locked in that order before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from infra.database import execution_rows, positions
from infra.database.reservations import free_quota
from infra.database.schema import jobs
from infra.database.stored_job import definition_columns
from workflows.contracts.names import job_of
from workflows.contracts.records import FINAL_PHASE, JobProgress, JobRow, Record

_FINAL_SEQ = FINAL_PHASE
"""The seq of progress that comes without an execution."""


def write(connection: sa.Connection, records: Iterable[Record]) -> None:
    """Store all of ``records`` in the transaction of ``connection``."""
    batch = _Batch()
    for record in records:
        batch.add(record)
    execution_rows.write(connection, batch.executions)
    progress, changes = batch.progress, batch.changes
    if progress and changes:
        _lock(connection, progress, changes)
    _write_progress(connection, progress)
    apply_jobs(connection, changes)


class _Batch:
    def __init__(self) -> None:
        self.executions = execution_rows.MergedRows()
        self._progress: dict[tuple[str, str], tuple[int, int, JobProgress]] = {}
        self._changes: dict[tuple[str, str], JobRow] = {}

    def add(self, record: Record) -> None:
        place = (record.tenant, record.ref)
        self.executions.add(record)
        if record.progress is not None:
            seq = _FINAL_SEQ if record.execution is None else record.execution.seq
            version = (record.progress.run_number, seq)
            if place not in self._progress or version > self._progress[place][:2]:
                self._progress[place] = (*version, record.progress)
        if record.job is not None:
            known = self._changes.get(place)
            if known is None or record.job.change > known.change:
                self._changes[place] = record.job

    @property
    def progress(self) -> list[dict[str, Any]]:
        rows = [
            {
                **_place(tenant, *job_of(ref)),
                "p_run": run,
                "p_seq": seq,
                "p_stats": progress.stats.model_dump_json(),
                "p_last_run": None if progress.last_run is None else progress.last_run.model_dump_json(),
                "p_outcome": None if progress.last_run is None else progress.last_run.outcome,
                "p_next": progress.next_fires_at,
            }
            for (tenant, ref), (run, seq, progress) in self._progress.items()
        ]
        return sorted(rows, key=itemgetter("p_tenant", "p_job", "p_generation"))

    @property
    def changes(self) -> list[tuple[str, JobRow]]:
        return [(tenant, row) for (tenant, _), row in self._changes.items()]


def _lock(
    connection: sa.Connection, progress: Sequence[dict[str, Any]], changes: Sequence[tuple[str, JobRow]]
) -> None:
    """SQLite has one writer at a time, which needs no locks."""
    if connection.dialect.name == "sqlite":
        return
    key = (jobs.c.tenant, jobs.c.job, jobs.c.generation)
    places = {(row["p_tenant"], row["p_job"], row["p_generation"]) for row in progress}
    places |= {(tenant, row.job, row.generation) for tenant, row in changes}
    connection.execute(
        sa.select(jobs.c.generation)
        .where(sa.tuple_(*key).in_(sorted(places)))
        .order_by(*key)
        .with_for_update()
    )


def apply_jobs(connection: sa.Connection, rows: Sequence[tuple[str, JobRow]]) -> int:
    """Store changes of jobs that are newer than what is stored; how many were.

    Nothing is inserted: a change of a job that the index does not know is no news. A deletion is final,
    and gives the place of the quota back with the one statement that makes the row a tombstone.
    """
    ordered = sorted(rows, key=lambda item: (item[0], item[1].job, item[1].generation, item[1].change))
    changed = 0
    freed: dict[str, int] = {}
    if ordered:
        positions.advance(connection)
    statement = _change_statement(connection.dialect.name)
    for tenant, row in ordered:
        result = connection.execute(statement, _change_columns(tenant, row))
        changed += result.rowcount
        if row.status == "deleted" and result.rowcount:
            freed[tenant] = freed.get(tenant, 0) + 1
    for tenant, count in sorted(freed.items()):
        free_quota(connection, tenant, count)
    return changed


def _write_progress(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(_PROGRESS, rows)


def _place(tenant: str, job: str, generation: int) -> dict[str, Any]:
    return {"p_tenant": tenant, "p_job": job, "p_generation": generation}


def _change_columns(tenant: str, row: JobRow) -> dict[str, Any]:
    deleted = row.status == "deleted"
    return {
        **_place(tenant, row.job, row.generation),
        **{f"p_{name}": value for name, value in definition_columns(row.definition).items()},
        "p_revision": row.revision,
        "p_change": row.change,
        "p_status": row.status,
        "p_pause": None if row.pause is None else row.pause.model_dump_json(),
        "p_updated_at": row.updated_at,
        "p_run": row.run_number,
        "p_next": None if deleted else row.next_fires_at,
        "p_deleted": deleted,
    }


def _at_place() -> sa.ColumnElement[bool]:
    return sa.and_(
        jobs.c.tenant == sa.bindparam("p_tenant"),
        jobs.c.job == sa.bindparam("p_job"),
        jobs.c.generation == sa.bindparam("p_generation"),
    )


@cache
def _change_statement(dialect: str) -> sa.Update:
    """``next_fires_at`` comes from whichever knew of more runs: this change or the stored progress.

    So a change that was made before a run, and arrives after it, does not turn the clock back.
    """
    run = sa.func.coalesce(sa.bindparam("p_run", type_=sa.BigInteger), jobs.c.run_number)
    stays = sa.and_(sa.not_(sa.bindparam("p_deleted", type_=sa.Boolean)), jobs.c.run_number > run)
    named = ("revision", "change", "status", "pause", "updated_at")
    searched = ("definition", "labels", "description", "target_type", "target_address", "group_name")
    return (
        sa.update(jobs)
        .where(_at_place(), jobs.c.change < sa.bindparam("p_change"), jobs.c.status != "deleted")
        .values(
            **{name: sa.bindparam(f"p_{name}", type_=jobs.c[name].type) for name in (*named, *searched)},
            change_run=run,
            next_fires_at=sa.case(
                (stays, jobs.c.next_fires_at), else_=sa.bindparam("p_next", type_=jobs.c.next_fires_at.type)
            ),
            fingerprint=None,
            reservation_key=None,
            position=positions.position(dialect),
        )
    )


def _progress_statement() -> sa.Update:
    """A run counts once it is newer, or the same run with a later word on it."""
    run, seq = sa.bindparam("p_run", type_=sa.BigInteger), sa.bindparam("p_seq", type_=sa.BigInteger)
    newer = sa.or_(jobs.c.run_number < run, sa.and_(jobs.c.run_number == run, jobs.c.run_seq < seq))
    moves = sa.and_(jobs.c.status != "deleted", jobs.c.change_run < run)
    return (
        sa.update(jobs)
        .where(_at_place(), newer)
        .values(
            run_number=run,
            run_seq=seq,
            stats=sa.bindparam("p_stats", type_=sa.Text),
            last_run=sa.bindparam("p_last_run", type_=sa.Text),
            last_outcome=sa.bindparam("p_outcome", type_=jobs.c.last_outcome.type),
            next_fires_at=sa.case(
                (moves, sa.bindparam("p_next", type_=jobs.c.next_fires_at.type)), else_=jobs.c.next_fires_at
            ),
        )
    )


_PROGRESS = _progress_statement()
