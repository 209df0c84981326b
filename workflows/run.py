"""A run beside its job's loop, with its own attempts, retries and end.

Forced manual runs and redrives, runs of backfills, what ``allow`` starts, redrives for deleted jobs.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.attempting import Attempting
    from workflows.contracts import names
    from workflows.contracts.job import JobState, RunEnded, Standing
    from workflows.domain import details, history, incidents, job_changes, job_state, unwritten
    from workflows.domain.active import is_paused


@workflow.defn(name=names.RUN_WORKFLOW)
class RunWorkflow(Attempting):
    """Its state is that of a job without sources; what it counts is told to the job at its end."""

    @workflow.init
    def __init__(self, state: JobState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, _: JobState) -> None:
        state = self.state
        if state.run is None and workflow.patched("stopped-before-its-first-step"):
            await self._tell_job()
        while state.run is not None or not self._is_told():
            self._settle_group()
            if self._history_is_long():
                await workflow.wait_condition(workflow.all_handlers_finished)
                state.runs_errands = state.as_of_0_4 = True
                workflow.continue_as_new(state)
            workflow.set_current_details(details.describe(state))
            self._send_errands()
            if (run := state.run) is not None:
                await self._attempt(run)
                if state.run is None and state.last_run is None:
                    now = workflow.now()  # it came too late, or met a pause
                    state.last_run = history.left_out(run.occurrence, now, paused=is_paused(state, now))
                await self._tell_job()
            else:
                await self._hand_over()
        if state.owes_word and state.as_of_0_4:
            await self._tell_job()
        workflow.set_current_details(details.describe(state))
        await self._last_errands_done()
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _tell_job(self) -> None:
        """Of the end, if it has come. The job takes it once, however often it is told.

        What the database does not know yet the job has to, lest a backfill run it again: so it is told
        once more when that is written.
        """
        last_run = self.state.last_run
        if last_run is None:
            return
        end = RunEnded(
            last_run=last_run,
            ended_at=last_run.ended_at or workflow.now(),
            incidents=self.state.incidents,
            unwritten=unwritten.told_at_end(self.state),
        )
        self.state.owes_word = end.unwritten is not None
        job = workflow.get_external_workflow_handle(names.job_workflow_id(self.state.tenant, self.state.ref))
        try:
            await job.signal(names.SIGNAL_ENDED, end)
        except ApplicationError:
            workflow.logger.info("the job of this run has been deleted meanwhile")
            incidents.gone(self.state, workflow.now())

    @workflow.signal(name=names.SIGNAL_STOP)
    def stop(self, reason: str) -> None:
        """Stop wherever it is: held, in flight or waiting for a retry."""
        state, run, now = self.state, self.state.run, workflow.now()
        self._changes += 1
        if self._call is not None:
            self._call.stop("now", reason)
        elif run is not None:
            inp = job_state.attempt_input(state, run)
            job_state.settle(state, run, inp, history.stopped(reason), reason, now)

    @workflow.signal(name=names.SIGNAL_STANDING)
    def standing(self, told: Standing) -> None:
        """A change of its job means for this run what it means for one of the job's loop."""
        self._changes += 1
        stop = job_changes.heard(self.state, told, workflow.now(), calling=self._call is not None)
        if stop is not None and self._call is not None:
            self._call.stop("if_held", stop.reason)
