"""The index of dead letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("key", NAME, primary_key=True),
        sa.Column("ref", NAME, nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("scheduled_time", INSTANT, nullable=False),
        sa.Column("trigger", NAME, nullable=False),
        sa.Column("opened_at", INSTANT, nullable=False),
        sa.Column("failed_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("status_code", sa.Integer),
        sa.Column("error", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("status", NAME, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("redrives", sa.Integer, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
        sa.Column("changed_at", INSTANT, nullable=False),
        sqlite_with_rowid=False,
    )
    newest = sa.text("scheduled_time DESC")
    _index("of_tenant", ["tenant", newest, "key"], "closed = false")
    _index("of_job", ["tenant", "job", newest, "key"], "closed = false")
    _index("opened", ["tenant", sa.text("opened_at DESC"), "key"], "closed = false")
    _index("closed", ["tenant", "changed_at"], "closed = true")


def _index(name: str, columns: list[str | sa.TextClause], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(
        f"dead_letters_{name}", "dead_letters", columns, sqlite_where=where, postgresql_where=where
    )
