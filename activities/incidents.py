"""Incidents: the word on one that reaches its workflow, the message to the tenant, and the row."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.incident import IncidentWord
from workflows.contracts.names import INCIDENT_WORKFLOW, MAIN_QUEUE, SIGNAL_INCIDENT, incident_workflow_id
from workflows.domain import incident_state

TELL_WITHIN = timedelta(seconds=5)


async def tell(client: Client, word: IncidentWord) -> None:
    """Say that an incident is open, which opens it if it is not, or that it is over.

    Safe to repeat: what is said twice is one message still. That one is over which nobody has opened
    is nothing to do. Raises RPCError when the server is away.
    """
    workflow_id = incident_workflow_id(word.tenant, word.kind, word.subject)
    if not word.open:
        try:
            await client.get_workflow_handle(workflow_id).signal(
                SIGNAL_INCIDENT, word, rpc_timeout=TELL_WITHIN
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return
    await client.start_workflow(
        INCIDENT_WORKFLOW,
        incident_state.begun(word),
        id=workflow_id,
        task_queue=MAIN_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=SIGNAL_INCIDENT,
        start_signal_args=[word],
        priority=Priority(fairness_key=word.tenant),
        static_summary=f"{word.kind}: {word.detail}"[:200],
        rpc_timeout=TELL_WITHIN,
    )
