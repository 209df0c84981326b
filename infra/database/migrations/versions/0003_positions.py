"""Positions of changes, by which event streams follow them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    counter = op.create_table(
        "change_position",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(counter, [{"id": 1, "value": 0}])
    for table in ("executions", "jobs"):
        op.add_column(table, sa.Column("position", sa.BigInteger, nullable=False, server_default="0"))
        op.create_index(f"{table}_position", table, ["tenant", "position"])
