"""The audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("id", NAME, primary_key=True),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("by", NAME, nullable=False),
        sa.Column("operation", NAME, nullable=False),
        sa.Column("job", NAME),
        sa.Column("from_revision", sa.Integer),
        sa.Column("to_revision", sa.Integer),
        sa.Column("request_id", NAME, nullable=False),
        sqlite_with_rowid=False,
    )
    newest = sa.text("at DESC")
    op.create_index("audit_of_tenant", "audit", ["tenant", newest, "id"])
    op.create_index("audit_of_job", "audit", ["tenant", "job", newest, "id"])
