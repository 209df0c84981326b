"""Jobs, executions, attempts, usage and idempotency keys."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    _jobs()
    _history()
    _creation()


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("job", NAME, primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("ref", NAME, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
        sa.Column("change_run", sa.BigInteger, nullable=False),
        sa.Column("status", NAME, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("target_type", NAME, nullable=False),
        sa.Column("target_address", sa.Text, nullable=False),
        sa.Column("pause", sa.Text),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.Column("next_fires_at", INSTANT),
        sa.Column("run_number", sa.BigInteger, nullable=False),
        sa.Column("run_seq", sa.BigInteger, nullable=False),
        sa.Column("stats", sa.Text),
        sa.Column("last_run", sa.Text),
        sa.Column("last_outcome", NAME),
        sa.Column("fingerprint", sa.Text),
        sa.Column("reservation_key", sa.Text),
        sa.Column("freed", sa.Boolean, nullable=False),
    )
    live = _where("status <> 'deleted'")
    op.create_index("jobs_live", "jobs", ["tenant", "job"], unique=True, **live)
    op.create_index("jobs_created", "jobs", ["tenant", sa.text("created_at DESC"), "job"], **live)
    op.create_index("jobs_reserved", "jobs", ["created_at"], **_where("status = 'reserved'"))
    op.create_index("jobs_next_fires", "jobs", ["next_fires_at"], **_where("next_fires_at IS NOT NULL"))


def _history() -> None:
    op.create_table(
        "executions",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("key", NAME, primary_key=True),
        sa.Column("ref", NAME, nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("scheduled_time", INSTANT, nullable=False),
        sa.Column("fires_at", INSTANT, nullable=False),
        sa.Column("trigger", NAME, nullable=False),
        sa.Column("outcome", NAME, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("started_at", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("lateness_ms", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("last_scheduled_time", INSTANT),
        sa.Column("revision", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    newest = sa.text("scheduled_time DESC")
    op.create_index("executions_of_job", "executions", ["tenant", "ref", newest, "key"])
    op.create_index("executions_of_tenant", "executions", ["tenant", newest, "key"])
    op.create_table(
        "attempts",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("key", NAME, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("delivery", sa.Integer, nullable=False),
        sa.Column("outcome", NAME, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("started_at", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("status_code", sa.Integer),
        sa.Column("error", sa.Text),
        sa.Column("answer", sa.Text),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )


def _creation() -> None:
    op.create_table(
        "tenant_usage",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("jobs", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Double, nullable=False),
        sa.Column("refilled_at", INSTANT, nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("key", NAME, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("ref", NAME),
        sa.Column("response", sa.Text),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
    )
    op.create_index("idempotency_keys_expiry", "idempotency_keys", ["expires_at"])
