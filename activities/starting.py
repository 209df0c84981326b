"""The activity that starts a run beside its job's loop."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from workflows.contracts.job import JobState
from workflows.contracts.names import MAIN_QUEUE, RUN_WORKFLOW, START_RUN_ACTIVITY, run_workflow_id

START_WITHIN = timedelta(seconds=4)


class Starting:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=START_RUN_ACTIVITY)
    async def start_run(self, alone: JobState) -> None:
        """Start the workflow of a manual run; one that is started already is as good."""
        if alone.run is None:
            return
        request = alone.run.occurrence.key.rpartition(":manual-")[2]
        try:
            await self._client.start_workflow(
                RUN_WORKFLOW,
                alone,
                id=run_workflow_id(alone.tenant, alone.ref, request),
                task_queue=MAIN_QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                priority=Priority(
                    priority_key=alone.definition.priority,
                    fairness_key=alone.tenant,
                    fairness_weight=alone.hints.weight,
                ),
                static_summary=f"{alone.run.occurrence.key}, beside its job",
                rpc_timeout=START_WITHIN,
            )
        except WorkflowAlreadyStartedError:
            activity.logger.debug("run %s has been started before", request)
