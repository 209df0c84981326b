"""Jobs that are deleted, or ended otherwise, and of which the index does not know it yet.

A deletion counts once the job has accepted it; while the database is away its row is written later. Until
then the id is free all the same. A job whose workflow an operator terminated accepts nothing any more: its
row is all that can be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from api.connection import Connection
from api.jobs.reading import any_view_of, row_of_view
from api.jobs.refs import Found
from api.problems import Kind, ProblemError
from infra.database.errors import JobExists
from infra.database.jobs import JobIndex
from infra.temporal.errors import SetupError
from workflows.contracts.names import job_workflow_id
from workflows.contracts.records import JobRow

DESCRIBED_WITHIN = timedelta(seconds=2)
_ALIVE = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


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
    stored = found.stored
    if stored is None or not await _is_lost(connection, found):
        return False
    await index.apply(
        found.tenant,
        JobRow(
            job=stored.job,
            generation=stored.generation,
            revision=stored.revision,
            change=1 + max(stored.change, await _last_change(connection, found)),
            status="deleted",
            definition=stored.definition,
            created_at=stored.created_at,
            updated_at=now,
        ),
    )
    return True


async def refuse_lost(connection: Connection, found: Found) -> None:
    """Raises 409 for a job whose workflow ended without being asked to. Nothing when Temporal is away."""
    with suppress(RPCError, SetupError):
        if await _is_lost(connection, found):
            raise ProblemError(
                Kind.JOB_LOST,
                "The job's workflow was ended from outside (an operator terminated it), so the job runs no "
                "more and takes no change: delete it, then create it again.",
            )


async def _is_lost(connection: Connection, found: Found) -> bool:
    if found.stored is not None and found.stored.status in ("reserved", "deleted"):
        return False
    handle = (await connection.client()).get_workflow_handle(job_workflow_id(found.tenant, found.ref))
    try:
        status = (await handle.describe(rpc_timeout=DESCRIBED_WITHIN)).status
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return found.stored is not None
    return status not in (*_ALIVE, WorkflowExecutionStatus.COMPLETED)


async def _last_change(connection: Connection, found: Found) -> int:
    """Of the job's row, as its workflow knew it last; 0: nobody can tell any more."""
    try:
        view = await any_view_of(connection, found)
    except ProblemError:  # its history is gone too
        return 0
    return 0 if view is None else view.change
