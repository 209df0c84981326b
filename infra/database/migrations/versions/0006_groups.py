"""Concurrency groups, and which jobs name them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "groups",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("name", NAME, primary_key=True),
        sa.Column("limit", sa.Integer, nullable=False),
        sa.Column("changed_at", INSTANT, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("jobs", sa.Column("group_name", NAME))
    named = sa.text("group_name IS NOT NULL AND status <> 'deleted'")
    op.create_index(
        "jobs_group",
        "jobs",
        ["tenant", "group_name", "job"],
        sqlite_where=named,
        postgresql_where=named,
    )
