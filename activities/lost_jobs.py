"""Jobs whose workflow ended without being asked to: an operator terminated or deleted it.

Such a job accepts nothing any more. Its row is all that is left of it, and all that can be deleted.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from infra.database.jobs import JobIndex
from infra.database.stored_job import StoredJob
from workflows.contracts.job import JobView
from workflows.contracts.names import QUERY_VIEW, job_workflow_id
from workflows.contracts.records import JobRow

ANSWER_WITHIN = timedelta(seconds=2)
_AS_ASKED = (
    WorkflowExecutionStatus.RUNNING,
    WorkflowExecutionStatus.CONTINUED_AS_NEW,
    WorkflowExecutionStatus.COMPLETED,
)


async def was_ended(client: Client, tenant: str, ref: str) -> bool | None:
    """Whether somebody else ended the job's workflow; None: Temporal knows no such workflow (any more).

    Raises RPCError when Temporal is away.
    """
    handle = client.get_workflow_handle(job_workflow_id(tenant, ref))
    try:
        return (await handle.describe(rpc_timeout=ANSWER_WITHIN)).status not in _AS_ASKED
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


async def bury(client: Client, index: JobIndex, stored: StoredJob, now: datetime) -> None:
    """Mark the row of a lost job as deleted. Raises DatabaseError when the database is away."""
    await index.apply(
        stored.tenant,
        JobRow(
            job=stored.job,
            generation=stored.generation,
            revision=stored.revision,
            change=1 + max(stored.change, await _last_change(client, stored)),
            status="deleted",
            definition=stored.definition,
            created_at=stored.created_at,
            updated_at=now,
        ),
    )


async def _last_change(client: Client, stored: StoredJob) -> int:
    """Of the job's row, as its workflow knew it last; 0: nobody can tell any more."""
    handle = client.get_workflow_handle(job_workflow_id(stored.tenant, stored.ref))
    try:
        view: JobView = await handle.query(QUERY_VIEW, result_type=JobView, rpc_timeout=ANSWER_WITHIN)
    except (RPCError, WorkflowQueryFailedError):
        return 0
    return view.change
