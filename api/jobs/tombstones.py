"""Jobs that are deleted, or ended otherwise, and of which the index does not know it yet.

A deletion counts once the job has accepted it; while the database is away its row is written later. Until
then the id is free all the same. A job whose workflow an operator terminated accepts nothing any more: its
row is all that can be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from temporalio.service import RPCError

from activities import lost_jobs
from api.connection import Connection
from api.jobs.reading import any_view_of, row_of_view
from api.jobs.refs import Found
from api.problem_table import job_lost
from api.problems import ProblemError
from infra.database.errors import JobExists
from infra.database.jobs import JobIndex
from infra.temporal.errors import SetupError
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


async def bury_lost(connection: Connection, index: JobIndex, found: Found, now: datetime) -> bool:
    """Mark the job as deleted whose workflow ended without being asked to; False: it did not.

    Raises RPCError and DatabaseError when Temporal or the database is away.
    """
    if found.stored is None or not await _is_lost(connection, found):
        return False
    await lost_jobs.bury(await connection.client(), index, found.stored, now)
    return True


async def refuse_lost(connection: Connection, found: Found) -> None:
    """Raises 409 for a job whose workflow ended without being asked to. Nothing when Temporal is away."""
    with suppress(RPCError, SetupError):
        if await _is_lost(connection, found):
            raise job_lost()


async def _is_lost(connection: Connection, found: Found) -> bool:
    if found.stored is not None and not found.is_stored:
        return False
    ended = await lost_jobs.was_ended(await connection.client(), found.tenant, found.ref)
    return found.is_stored if ended is None else ended
