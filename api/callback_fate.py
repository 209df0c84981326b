"""What became of an attempt whose callback token the server does not take any more.

Asked of Temporal itself, which knows it without a worker and without the database: first whether the
activity is still there, in other hands, then its end in the history of its workflow's run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.attempt import AttemptReport
from workflows.contracts.callback import CallbackClaims
from workflows.contracts.failures import ATTEMPT_FAILED

CALL = timedelta(seconds=3)
EVENTS_MAX = 5000
"""A job's history has a tenth of them before it continues as new."""


class Fate(Enum):
    TAKEN_OVER = "taken over"
    """Its lease was lost: another delivery has been made, or will be."""
    ENDED = "ended"
    """With a report."""
    LEASE_LOST = "lease lost"
    """The server gave the activity up; the job decides what follows."""
    CANCELLED = "cancelled"
    FORGOTTEN = "forgotten"
    """Its workflow was ended by force, or is kept no longer."""
    UNKNOWN = "unknown"
    """It ended this very moment, and the history does not say how yet."""


@dataclass(frozen=True, slots=True)
class Found:
    fate: Fate
    report: AttemptReport | None = None


async def fate_of(client: Client, claims: CallbackClaims) -> Found:
    """Raises RPCError when Temporal does not answer."""
    run = client.get_workflow_handle(claims.workflow_id, run_id=claims.run_id)
    try:
        described = (await run.describe(rpc_timeout=CALL)).raw_description
        for pending in described.pending_activities:
            if pending.activity_id == claims.activity_id:
                return Found(Fate.TAKEN_OVER)
        end = await _end_of(run, claims.activity_id)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return Found(Fate.FORGOTTEN)
        raise
    if end is None:
        alive = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
        is_alive = described.workflow_execution_info.status == alive
        return Found(Fate.UNKNOWN if is_alive else Fate.FORGOTTEN)
    return await _read(client, end)


async def _end_of(run: WorkflowHandle[object, object], activity_id: str) -> HistoryEvent | None:
    """The event that ended the activity, if the history has it."""
    scheduled = 0
    count = 0
    async for event in run.fetch_history_events(rpc_timeout=CALL):
        if event.activity_task_scheduled_event_attributes.activity_id == activity_id:
            scheduled = event.event_id
        elif scheduled:
            for attributes in (
                event.activity_task_completed_event_attributes,
                event.activity_task_failed_event_attributes,
                event.activity_task_timed_out_event_attributes,
                event.activity_task_canceled_event_attributes,
            ):
                if attributes.scheduled_event_id == scheduled:
                    return event
        count += 1
        if count >= EVENTS_MAX:
            break
    return None


async def _read(client: Client, end: HistoryEvent) -> Found:
    converter = client.data_converter
    if end.HasField("activity_task_completed_event_attributes"):
        result = end.activity_task_completed_event_attributes.result.payloads
        [report] = await converter.decode(result, [AttemptReport])
        return Found(Fate.ENDED, report)
    if end.HasField("activity_task_canceled_event_attributes"):
        return Found(Fate.CANCELLED)
    if end.HasField("activity_task_failed_event_attributes"):
        failure = await converter.decode_failure(end.activity_task_failed_event_attributes.failure)
        if isinstance(failure, ApplicationError) and failure.type == ATTEMPT_FAILED and failure.details:
            return Found(Fate.ENDED, AttemptReport.model_validate(failure.details[0]))
    return Found(Fate.LEASE_LOST)
