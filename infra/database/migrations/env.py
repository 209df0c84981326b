"""Run by Alembic. The connection comes from :mod:`infra.database.migration`, never from a file."""

from __future__ import annotations

from alembic import context

from infra.database.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_type=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
