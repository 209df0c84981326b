"""What jobs and concurrency groups say to each other, where a signal by the workflow itself will not do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.group import GroupAsk, GroupGrant, GroupLeave, GroupState
from workflows.contracts.names import (
    ASK_GROUP_ACTIVITY,
    ASK_HOLDERS_ACTIVITY,
    GROUP_WORKFLOW,
    MAIN_QUEUE,
    QUERY_STATE,
    SIGNAL_ASK,
    SIGNAL_LEAVE,
    UPDATE_HOLDS,
    group_workflow_id,
)
from workflows.contracts.search import attributes

log = logging.getLogger(__name__)

ASK_WITHIN = timedelta(seconds=2)
READ_WITHIN = timedelta(seconds=2)
LEAVE_WITHIN = timedelta(seconds=5)
ANSWER_WITHIN_S = 3.0
ALL_WITHIN_S = 6.0
AT_ONCE = 16
"""Holders asked at the same time."""


class GroupUnread(Exception):
    """Nobody can say what a group had whose workflow came to a violent end: later, perhaps."""


class Groups:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=ASK_GROUP_ACTIVITY)
    async def ask(self, asked: GroupAsk) -> None:
        """Ask for a place; a group that is not there yet begins, with one place.

        One whose workflow was terminated goes on as it was. It is looked for only when nobody hears the ask.
        """
        try:
            handle = self._client.get_workflow_handle(group_workflow_id(asked.tenant, asked.group))
            await handle.signal(SIGNAL_ASK, asked, rpc_timeout=ASK_WITHIN)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        else:
            return
        left = await left_by(self._client, asked.tenant, asked.group)
        await self._client.start_workflow(
            GROUP_WORKFLOW,
            left or GroupState(tenant=asked.tenant, group=asked.group),
            id=group_workflow_id(asked.tenant, asked.group),
            task_queue=MAIN_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=SIGNAL_ASK,
            start_signal_args=[asked],
            priority=Priority(fairness_key=asked.tenant),
            search_attributes=attributes(asked.tenant),
            static_summary=f"group {asked.group} of {asked.tenant}",
            rpc_timeout=ASK_WITHIN,
        )

    @activity.defn(name=ASK_HOLDERS_ACTIVITY)
    async def ask_holders(self, grants: list[GroupGrant], workflow_ids: list[str]) -> list[int]:
        """Tokens of the grants whose workflow, the one at the same place of the list, has let go of them.

        It has if it says so, has ended or is not there; one that does not answer in time has not.
        """
        room = asyncio.Semaphore(AT_ONCE)
        asked = {
            asyncio.create_task(self._holds(grant, workflow_id, room)): grant.token
            for grant, workflow_id in zip(grants, workflow_ids, strict=True)
        }
        answered, silent = await asyncio.wait(asked, timeout=ALL_WITHIN_S)
        for question in silent:
            question.cancel()
        await asyncio.gather(*silent, return_exceptions=True)
        return [asked[question] for question in answered if not question.result()]

    async def _holds(self, grant: GroupGrant, workflow_id: str, room: asyncio.Semaphore) -> bool:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            async with room, asyncio.timeout(ANSWER_WITHIN_S):
                holds: bool = await handle.execute_update(UPDATE_HOLDS, grant, result_type=bool)
                return holds
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            activity.logger.info("%s cannot be asked: %s", workflow_id, error.message)
        except (TimeoutError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            activity.logger.info("%s did not answer: %r", workflow_id, error)
        return True


async def left_by(client: Client, tenant: str, group: str) -> GroupState | None:
    """The limit, places and queue of a group whose workflow came to a violent end, while the server keeps
    its history.

    None: it lives, never was, or was deleted. Raises RPCError without an answer in time, GroupUnread without
    a worker that can tell: begun without its places, a group would give them away twice.
    """
    workflow_id = group_workflow_id(tenant, group)
    try:
        found = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=READ_WITHIN)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    if found.status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED):
        return None
    closed = client.get_workflow_handle(workflow_id, run_id=found.run_id)
    try:
        state: GroupState = await closed.query(QUERY_STATE, result_type=GroupState, rpc_timeout=READ_WITHIN)
    except WorkflowQueryFailedError as error:
        reason = str(error)
    except RPCError as error:
        # Of one that ended before its first task, and of any when no worker has asked for work of late.
        if error.status is not RPCStatusCode.FAILED_PRECONDITION:
            raise
        reason = error.message
    else:
        return state
    begun = await _unchanged_since_its_begin(client, closed)
    if begun is None:
        log.warning("group %s/%s cannot be read: %s", tenant, group, reason)
        raise GroupUnread(f"group {group} was ended by force, and no worker can tell what it had: {reason}")
    return begun


async def _unchanged_since_its_begin(
    client: Client, closed: WorkflowHandle[object, object]
) -> GroupState | None:
    """What a group began with that ended before its first task was done; None: it went on from there."""
    payloads: Sequence[Payload] = ()
    async for event in closed.fetch_history_events(page_size=100, rpc_timeout=READ_WITHIN):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            payloads = event.workflow_execution_started_event_attributes.input.payloads
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return None
    [state] = await client.data_converter.decode(payloads, [GroupState])
    return state if isinstance(state, GroupState) else None


async def leave_group(client: Client, tenant: str, leave: GroupLeave) -> None:
    """A group that is not there has no place to give back. Raises RPCError when the server is away."""
    handle = client.get_workflow_handle(group_workflow_id(tenant, leave.group))
    try:
        await handle.signal(SIGNAL_LEAVE, leave, rpc_timeout=LEAVE_WITHIN)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
