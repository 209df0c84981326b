"""A run beside its job's loop: a forced manual run, with its own attempts, retries and end."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.attempting import Attempting
    from workflows.contracts import names
    from workflows.contracts.job import JobState, RunEnded, RunState
    from workflows.domain import details, history, incidents, job_changes


@workflow.defn(name=names.RUN_WORKFLOW)
class RunWorkflow(Attempting):
    """Its state is that of a job without sources; what it counts is told to the job at its end."""

    @workflow.init
    def __init__(self, state: JobState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, _: JobState) -> None:
        state = self.state
        while state.run is not None or not self._is_told():
            self._settle_group()
            if self._history_is_long():
                await workflow.wait_condition(workflow.all_handlers_finished)
                state.runs_errands = True
                workflow.continue_as_new(state)
            workflow.set_current_details(details.describe(state))
            self._send_errands()
            if (run := state.run) is not None:
                await self._attempt(run)
                await self._tell_job(run)
            else:
                await self._hand_over()
        workflow.set_current_details(details.describe(state))
        await self._errands_done()
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _tell_job(self, run: RunState) -> None:
        last_run = self.state.last_run
        if last_run is None:
            if self.state.run is not None:  # a retry follows
                return
            last_run = history.left_out(run.occurrence, workflow.now())  # it came too late
        end = RunEnded(
            last_run=last_run,
            ended_at=last_run.ended_at or workflow.now(),
            incidents=self.state.incidents,
        )
        job = workflow.get_external_workflow_handle(names.job_workflow_id(self.state.tenant, self.state.ref))
        try:
            await job.signal(names.SIGNAL_ENDED, end)
        except ApplicationError:
            workflow.logger.info("the job of this run has been deleted meanwhile")
            incidents.gone(self.state, workflow.now())

    @workflow.signal(name=names.SIGNAL_STOP)
    def stop(self, reason: str) -> None:
        """Stop wherever it is: held, in flight or waiting for a retry."""
        state = self.state
        self._changes += 1
        if self._call is not None:
            self._call.stop("now", reason)
        elif state.run is not None:
            job_changes.cancel_waiting(state, state.run.occurrence.key, workflow.now())
