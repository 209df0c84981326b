"""Creating jobs: one transaction reserves a place, a later one gives it up or makes it a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from infra.database import audit
from infra.database.admission import Admission, Draft, KnownKey, Reservation, Usage, full
from infra.database.errors import ReservationRefused
from infra.database.schema import audit as audit_table
from infra.database.schema import idempotency_keys, jobs, tenant_usage
from infra.database.stored_job import StoredJob, definition_columns, from_row
from infra.database.upsert import Upsert, insert
from workflows.contracts.names import job_of

KEY_LIFETIME = timedelta(hours=24)


def reserve(
    connection: sa.Connection,
    tenant: str,
    drafts: Sequence[Draft],
    *,
    max_jobs: int,
    create_rate: float,
    now: datetime,
) -> list[Reservation | ReservationRefused]:
    """Reserve what may be created of ``drafts``; the tenant's usage row is locked from the start."""
    usage = _lock_usage(connection, tenant, create_rate, now)
    usage.refill(create_rate, now)
    newest = {}
    reserved_by = {}
    ids = sorted({draft.job for draft in drafts})
    for row in connection.execute(_NEWEST, {"in_tenant": tenant, "ids": ids}):
        job = newest[row.job] = from_row(row)
        if job.status == "reserved":
            reserved_by[job.ref] = Draft(job.job, job.definition, row.fingerprint, row.reservation_key)
    admission = Admission(
        tenant=tenant,
        max_jobs=max_jobs,
        create_rate=create_rate,
        now=now,
        usage=usage,
        newest=newest,
        keys=_known_keys(connection, tenant, [draft.key for draft in drafts if draft.key is not None], now),
        reserved_by=reserved_by,
    )
    answers = admission.admit_all(drafts)
    _store(connection, admission)
    return answers


def release(connection: sa.Connection, tenant: str, ref: str, now: datetime) -> bool:
    """Give an unfinished reservation up; its id is free, its generation is not used again."""
    job, generation = job_of(ref)
    freed = connection.execute(
        sa.update(jobs)
        .where(jobs.c.tenant == tenant, jobs.c.job == job, jobs.c.generation == generation)
        .where(jobs.c.status == "reserved")
        .values(status="deleted", freed=True, updated_at=now, fingerprint=None, reservation_key=None)
    )
    if freed.rowcount == 0:
        return False
    connection.execute(
        sa.delete(idempotency_keys).where(idempotency_keys.c.tenant == tenant, idempotency_keys.c.ref == ref)
    )
    connection.execute(
        sa.delete(audit_table).where(
            audit_table.c.tenant == tenant, audit_table.c.id == audit.creation_id(ref)
        )
    )
    free_quota(connection, tenant, 1)
    return True


def free_quota(connection: sa.Connection, tenant: str, count: int) -> None:
    """Give ``count`` places back; the caller has seen to it that each is given back once."""
    connection.execute(
        sa.update(tenant_usage)
        .where(tenant_usage.c.tenant == tenant)
        .values(jobs=tenant_usage.c.jobs - count)
    )


def forget_keys(connection: sa.Connection, now: datetime) -> int:
    """Remove Idempotency-Keys of all tenants whose day is over; how many."""
    return connection.execute(
        sa.delete(idempotency_keys).where(idempotency_keys.c.expires_at <= now)
    ).rowcount


def stale(connection: sa.Connection, older_than: datetime, limit: int) -> list[StoredJob]:
    """Unfinished reservations of all tenants made before ``older_than``, oldest first."""
    query = (
        sa.select(*jobs.c)
        .where(jobs.c.status == sa.literal_column("'reserved'"), jobs.c.created_at < older_than)
        .order_by(jobs.c.created_at)
        .limit(limit)
    )
    return [from_row(row) for row in connection.execute(query)]


def _lock_usage(connection: sa.Connection, tenant: str, rate: float, now: datetime) -> Usage:
    """Read the row and hold it; creations of one tenant follow one another from here on."""
    unused = {"tenant": tenant, "jobs": 0, "tokens": full(rate), "refilled_at": now}
    row = connection.execute(_lock_statement(connection.dialect.name), unused).one()
    return Usage(row.jobs, row.tokens, row.refilled_at)


@cache
def _lock_statement(dialect: str) -> sa.Executable:
    """Statements are built once: that takes longer than running them."""
    fresh = insert(dialect, tenant_usage)
    return fresh.on_conflict_do_update(
        index_elements=[tenant_usage.c.tenant], set_={"tenant": fresh.excluded.tenant}
    ).returning(tenant_usage.c.jobs, tenant_usage.c.tokens, tenant_usage.c.refilled_at)


def _newest_statement() -> sa.Select[Any]:
    other = jobs.alias()
    tenant: sa.BindParameter[str] = sa.bindparam("in_tenant")
    newest = (
        sa.select(sa.func.max(other.c.generation))
        .where(other.c.tenant == tenant, other.c.job == jobs.c.job)
        .scalar_subquery()
    )
    named = jobs.c.job.in_(sa.bindparam("ids", expanding=True))
    return sa.select(*jobs.c).where(jobs.c.tenant == tenant, named, jobs.c.generation == newest)


_NEWEST = _newest_statement()
_KNOWN_KEYS = sa.select(idempotency_keys.c.key, idempotency_keys.c.fingerprint, idempotency_keys.c.ref).where(
    idempotency_keys.c.tenant == sa.bindparam("in_tenant"),
    idempotency_keys.c.key.in_(sa.bindparam("keys", expanding=True)),
    idempotency_keys.c.expires_at > sa.bindparam("now"),
)
_TAKE = (
    sa.update(tenant_usage)
    .where(tenant_usage.c.tenant == sa.bindparam("in_tenant"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("jobs", "tokens", "refilled_at")})
)
_INSERT = sa.insert(jobs)


@cache
def _learn_statement(dialect: str) -> Upsert:
    fresh = insert(dialect, idempotency_keys)
    columns = ("fingerprint", "ref", "response", "created_at", "expires_at")
    return fresh.on_conflict_do_update(
        index_elements=[idempotency_keys.c.tenant, idempotency_keys.c.key],
        set_={name: fresh.excluded[name] for name in columns},
    )


def _known_keys(
    connection: sa.Connection, tenant: str, keys: Sequence[str], now: datetime
) -> dict[str, KnownKey]:
    if not keys:
        return {}
    asked = {"in_tenant": tenant, "keys": sorted(set(keys)), "now": now}
    rows = connection.execute(_KNOWN_KEYS, asked).all()
    generations = [job_of(row.ref) for row in rows if row.ref is not None]
    made: dict[str, StoredJob] = {}
    if generations:
        place = sa.tuple_(jobs.c.job, jobs.c.generation)
        query = sa.select(*jobs.c).where(jobs.c.tenant == tenant, place.in_(generations))
        made = {job.ref: job for job in map(from_row, connection.execute(query))}
    return {row.key: KnownKey(row.fingerprint, made.get(row.ref)) for row in rows}


def _store(connection: sa.Connection, admission: Admission) -> None:
    if admission.created:
        connection.execute(_INSERT, [_columns(draft, job) for draft, job in admission.created])
        audit.store(connection, (_entry(draft, job) for draft, job in admission.created))
        usage = admission.usage
        connection.execute(
            _TAKE,
            {
                "in_tenant": admission.tenant,
                "new_jobs": usage.jobs,
                "new_tokens": usage.tokens,
                "new_refilled_at": usage.refilled_at,
            },
        )
    if admission.learned:
        connection.execute(
            _learn_statement(connection.dialect.name),
            [
                {
                    "tenant": admission.tenant,
                    "key": draft.key,
                    "fingerprint": draft.fingerprint,
                    "ref": ref,
                    "response": None,
                    "created_at": admission.now,
                    "expires_at": admission.now + KEY_LIFETIME,
                }
                for draft, ref in admission.learned
            ],
        )


def _entry(draft: Draft, job: StoredJob) -> audit.AuditEntry:
    return audit.creation(
        tenant=job.tenant,
        ref=job.ref,
        job=job.job,
        at=job.created_at,
        by=job.created_by,
        revision=job.revision,
        request_id=draft.request_id,
    )


def _columns(draft: Draft, job: StoredJob) -> dict[str, object]:
    return {
        "tenant": job.tenant,
        "job": job.job,
        "generation": job.generation,
        "ref": job.ref,
        "revision": job.revision,
        "change": 0,
        "change_run": 0,
        "status": job.status,
        **definition_columns(job.definition),
        "pause": None,
        "created_at": job.created_at,
        "created_by": job.created_by,
        "updated_at": job.updated_at,
        "next_fires_at": None,
        "run_number": 0,
        "run_seq": 0,
        "stats": None,
        "last_run": None,
        "last_outcome": None,
        "fingerprint": draft.fingerprint,
        "reservation_key": draft.key,
        "freed": False,
    }
