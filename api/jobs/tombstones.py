"""Jobs that are deleted, and of which the index does not know it yet.

A deletion counts once the job has accepted it; while the database is away its row is written later. Until
then the id is free all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from api.connection import Connection
from api.jobs.reading import any_view_of, row_of_view
from api.jobs.refs import Found
from api.problems import ProblemError
from infra.database.errors import JobExists
from infra.database.jobs import JobIndex
from workflows.contracts.records import JobRow


async def bury(
    connection: Connection, index: JobIndex, tenant: str, refused: Sequence[JobExists], now: datetime
) -> bool:
    """Ask the jobs in the way of new ones whether they are deleted, and write the rows of those that are;
    False: none is. One that does not answer is not: then the others are not asked either."""
    rows: list[JobRow] = []
    for one in refused:
        try:
            view = await any_view_of(connection, Found(tenant, one.job, one.ref))
        except ProblemError:  # it is only reserved
            continue
        if view is None:
            break
        if view.status == "deleted":
            rows.append(row_of_view(tenant, view, now))
    for row in rows:
        await index.apply(tenant, row)
    return bool(rows)
