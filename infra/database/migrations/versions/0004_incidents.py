"""Incidents, and what tenants settle for themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("alert_url", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
    )
    op.create_table(
        "incidents",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("id", NAME, primary_key=True),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("job", NAME),
        sa.Column("key", NAME),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("opened_at", INSTANT, nullable=False),
        sa.Column("last_at", INSTANT, nullable=False),
        sa.Column("recovered_at", INSTANT),
        sa.Column("closed_at", INSTANT),
        sa.Column("notice", NAME, nullable=False),
        sa.Column("recovery_notice", NAME),
        sa.Column("change", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("incidents_closed", "incidents", ["tenant", "closed_at"])
    unclosed = sa.text("closed_at IS NULL")
    op.create_index(
        "incidents_open",
        "incidents",
        ["tenant", sa.text("opened_at DESC")],
        sqlite_where=unclosed,
        postgresql_where=unclosed,
    )
