"""The activity that starts a run beside its job's loop."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.job import JobState
from workflows.contracts.names import (
    MAIN_QUEUE,
    RUN_WORKFLOW,
    RUNS_ALIVE_ACTIVITY,
    SIGNAL_STOP,
    START_RUN_ACTIVITY,
    run_name,
    run_workflow_id,
)
from workflows.contracts.search import attributes

START_WITHIN = timedelta(seconds=4)
AT_ONCE = 16
"""Runs that are asked after at the same time; a job may have a thousand."""


async def start_alone(client: Client, alone: JobState) -> None:
    """Start the workflow of a run beside its job; one that is started already is as good.

    One that is to be stopped has the word in its first task, so it does not fire; so does one that runs.
    """
    if alone.run is None:
        return
    key = alone.run.occurrence.key
    name = run_name(key, alone.run.first_attempt, alone.run.backfill)
    try:
        await client.start_workflow(
            RUN_WORKFLOW,
            alone,
            id=run_workflow_id(alone.tenant, alone.ref, name),
            task_queue=MAIN_QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            priority=Priority(
                priority_key=alone.definition.priority,
                fairness_key=alone.tenant,
                fairness_weight=alone.hints.weight,
            ),
            start_signal=None if alone.run.stop is None else SIGNAL_STOP,
            start_signal_args=[] if alone.run.stop is None else [alone.run.stop],
            search_attributes=attributes(alone.tenant, alone.job, alone.ref),
            static_summary=f"{key}, beside its job",
            rpc_timeout=START_WITHIN,
        )
    except WorkflowAlreadyStartedError:
        activity.logger.debug("run %s has been started before", name)


class Starting:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=RUNS_ALIVE_ACTIVITY)
    async def runs_alive(self, workflow_ids: list[str]) -> list[bool]:
        """Whether each of these workflows is running, in order. Raises RPCError if the server is away."""
        room = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(self._is_alive(workflow_id, room) for workflow_id in workflow_ids))

    async def _is_alive(self, workflow_id: str, room: asyncio.Semaphore) -> bool:
        try:
            async with room:
                handle = self._client.get_workflow_handle(workflow_id)
                found = await handle.describe(rpc_timeout=START_WITHIN)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return found.status is WorkflowExecutionStatus.RUNNING

    @activity.defn(name=START_RUN_ACTIVITY)
    async def start_run(self, alone: JobState) -> None:
        await start_alone(self._client, alone)
