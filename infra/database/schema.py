"""The tables. Migrations under ``migrations/`` lead here; a test compares the two."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Index, Integer, Text

from infra.database.types import FreeText, Instant, Name

metadata = sa.MetaData()

LIVE = "status <> 'deleted'"
"""The condition of the indices over live jobs; queries repeat it literally so that it is recognised."""


GROUPED = "group_name IS NOT NULL AND status <> 'deleted'"
"""Likewise, of the index over the jobs of groups."""


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


jobs = sa.Table(
    "jobs",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("job", Name, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("ref", Name, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("change", BigInteger, nullable=False),
    Column("change_run", BigInteger, nullable=False),
    Column("status", Name, nullable=False),
    Column("definition", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("description", FreeText, nullable=False),
    Column("target_type", Name, nullable=False),
    Column("target_address", FreeText, nullable=False),
    Column("pause", Text),
    Column("created_at", Instant, nullable=False),
    Column("created_by", FreeText, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("next_fires_at", Instant),
    Column("run_number", BigInteger, nullable=False),
    Column("run_seq", BigInteger, nullable=False),
    Column("stats", Text),
    Column("last_run", Text),
    Column("last_outcome", Name),
    Column("fingerprint", Text),
    Column("reservation_key", Text),
    Column("freed", sa.Boolean, nullable=False),
    Column("position", BigInteger, nullable=False, server_default="0"),
    Column("group_name", Name),
    Index("jobs_group", "tenant", "group_name", "job", **_where(GROUPED)),
    Index("jobs_position", "tenant", "position"),
    Index("jobs_live", "tenant", "job", unique=True, **_where(LIVE)),
    Index("jobs_reserved", "created_at", **_where("status = 'reserved'")),
    Index("jobs_next_fires", "next_fires_at", **_where("next_fires_at IS NOT NULL")),
)
"""One row a generation of a job id. ``description`` is case-folded, ``labels`` is encoded (jobs.py),
``change_run`` and ``run_seq`` order what moves ``next_fires_at`` (records.py), ``freed`` marks a
reservation that was given up, ``position`` says when it was last changed (positions.py)."""

Index("jobs_created", jobs.c.tenant, jobs.c.created_at.desc(), jobs.c.job, **_where(LIVE))

groups = sa.Table(
    "groups",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("name", Name, primary_key=True),
    Column("limit", Integer, nullable=False),
    Column("changed_at", Instant, nullable=False),
    sqlite_with_rowid=False,
)
"""Concurrency groups that were given a limit; the others are known by the jobs that name them."""

executions = sa.Table(
    "executions",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("key", Name, primary_key=True),
    Column("ref", Name, nullable=False),
    Column("job", Name, nullable=False),
    Column("scheduled_time", Instant, nullable=False),
    Column("fires_at", Instant, nullable=False),
    Column("trigger", Name, nullable=False),
    Column("outcome", Name, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("lateness_ms", BigInteger),
    Column("reason", FreeText),
    Column("count", BigInteger, nullable=False),
    Column("last_scheduled_time", Instant),
    Column("revision", Integer, nullable=False),
    Column("position", BigInteger, nullable=False, server_default="0"),
    Index("executions_position", "tenant", "position"),
    sqlite_with_rowid=False,
)

_newest = executions.c.scheduled_time.desc()
Index("executions_of_job", executions.c.tenant, executions.c.ref, _newest, executions.c.key)
Index("executions_of_tenant", executions.c.tenant, _newest, executions.c.key)

attempts = sa.Table(
    "attempts",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("key", Name, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("delivery", Integer, nullable=False),
    Column("outcome", Name, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("status_code", Integer),
    Column("error", FreeText),
    Column("answer", FreeText),
    Column("worker", FreeText, nullable=False),
    Column("revision", Integer, nullable=False),
    sqlite_with_rowid=False,
)

tenant_usage = sa.Table(
    "tenant_usage",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("jobs", Integer, nullable=False),
    Column("tokens", sa.Double, nullable=False),
    Column("refilled_at", Instant, nullable=False),
)
"""What a tenant has used of its quota; its row is the lock under which jobs are created."""

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("key", Name, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("ref", Name),
    Column("response", Text),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Index("idempotency_keys_expiry", "expires_at"),
)
"""``ref``: what the request made, when that can be read again; ``response``: its answer, when not."""

audit = sa.Table(
    "audit",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("id", Name, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("by", Name, nullable=False),
    Column("operation", Name, nullable=False),
    Column("job", Name),
    Column("from_revision", Integer),
    Column("to_revision", Integer),
    Column("request_id", Name, nullable=False),
    sqlite_with_rowid=False,
)
"""One row an accepted change. Its id comes from the change where that can be asked for twice."""

_latest = audit.c.at.desc()
Index("audit_of_tenant", audit.c.tenant, _latest, audit.c.id)
Index("audit_of_job", audit.c.tenant, audit.c.job, _latest, audit.c.id)

dead_letters = sa.Table(
    "dead_letters",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("key", Name, primary_key=True),
    Column("ref", Name, nullable=False),
    Column("job", Name, nullable=False),
    Column("scheduled_time", Instant, nullable=False),
    Column("trigger", Name, nullable=False),
    Column("opened_at", Instant, nullable=False),
    Column("failed_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("reason", FreeText),
    Column("attempts", Integer, nullable=False),
    Column("status_code", Integer),
    Column("error", FreeText),
    Column("revision", Integer, nullable=False),
    Column("status", Name, nullable=False),
    Column("closed", sa.Boolean, nullable=False),
    Column("redrives", Integer, nullable=False),
    Column("change", BigInteger, nullable=False),
    Column("changed_at", Instant, nullable=False),
    sqlite_with_rowid=False,
)
"""One row a key: the last dead letter of that occurrence. ``closed`` is made from ``status``."""

OPEN_LETTERS, CLOSED_LETTERS = "closed = false", "closed = true"
"""Conditions of the indices over dead letters; queries repeat them literally."""
_newest_letter = dead_letters.c.scheduled_time.desc()
Index("dead_letters_of_tenant", dead_letters.c.tenant, _newest_letter, dead_letters.c.key,
      **_where(OPEN_LETTERS))  # fmt: skip
Index("dead_letters_of_job", dead_letters.c.tenant, dead_letters.c.job, _newest_letter, dead_letters.c.key,
      **_where(OPEN_LETTERS))  # fmt: skip
Index("dead_letters_opened", dead_letters.c.tenant, dead_letters.c.opened_at.desc(), dead_letters.c.key,
      **_where(OPEN_LETTERS))  # fmt: skip
Index("dead_letters_closed", dead_letters.c.tenant, dead_letters.c.changed_at, **_where(CLOSED_LETTERS))

change_position = sa.Table(
    "change_position",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", BigInteger, nullable=False),
)
"""One row: the position of the last transaction. SQLite only; PostgreSQL numbers transactions itself."""

tenants = sa.Table(
    "tenants",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("alert_url", Text),
    Column("revision", Integer, nullable=False),
    Column("updated_at", Instant, nullable=False),
)
"""What a tenant has settled for itself; one without a row has the installation's defaults."""

incidents = sa.Table(
    "incidents",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("id", Name, primary_key=True),
    Column("kind", Name, nullable=False),
    Column("subject", FreeText, nullable=False),
    Column("job", Name),
    Column("key", Name),
    Column("detail", FreeText, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("opened_at", Instant, nullable=False),
    Column("last_at", Instant, nullable=False),
    Column("recovered_at", Instant),
    Column("closed_at", Instant),
    Column("notice", Name, nullable=False),
    Column("recovery_notice", Name),
    Column("change", BigInteger, nullable=False),
    Index("incidents_closed", "tenant", "closed_at"),
    sqlite_with_rowid=False,
)
"""One row an incident, from its workflow; ``change`` orders what is written of one."""

Index("incidents_open", incidents.c.tenant, incidents.c.opened_at.desc(), **_where("closed_at IS NULL"))
