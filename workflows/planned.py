"""The plan of a job, and what of it falls due while a run is active (``allow`` and ``replace``).

Not a workflow itself. ``forbid`` and ``queue`` settle at a run's end what fell due meanwhile, so only the
other two need a timer beside a run.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.attempt import AttemptCall
    from workflows.beside import ASK_AFTER_BESIDE
    from workflows.contracts import failures, names
    from workflows.contracts.base import rfc3339
    from workflows.contracts.job import RunState
    from workflows.contracts.planning import Plan, PlannedOccurrence
    from workflows.contracts.records import Pause
    from workflows.domain import active, gate, job_changes, job_sources, job_state
    from workflows.domain.gate import Decision
    from workflows.requested import Requested

PLAN_WITHIN = timedelta(seconds=10)


class Planned(Requested):
    async def _plan(self, as_of: datetime | None = None) -> bool:
        """Ask the planner, as of now unless it is said otherwise; False if it did not answer."""
        state, seen = self.state, self._changes
        asked = job_state.plan_input(state, as_of or workflow.now())
        try:
            plan = await self._ask(
                names.PLAN_ACTIVITY,
                asked,
                result_type=Plan,
                each=PLAN_WITHIN,
                summary=f"plan behind {rfc3339(asked.after)}",
            )
        except ActivityError as failure:
            if self._changes == seen:
                self._pause_if_broken(failure.cause)
            return False
        if self._changes != seen:
            return True
        job_state.adopt(state, plan, asked.now)
        if self._row_lacks_plan:
            self._row_lacks_plan = False
            if state.plan:
                self._publish()
        return True

    def _pause_if_broken(self, cause: BaseException | None) -> None:
        """A schedule that broke after it was accepted (its zone vanished) pauses the job, loudly."""
        if isinstance(cause, ApplicationError) and cause.type == failures.RULE_BROKEN:
            reason = f"the schedule cannot be planned any more: {cause.message}"
            self.state.pause = Pause(since=workflow.now(), reason=reason, by="carillon")
            self._publish()

    # -- beside an active run ----------------------------------------------------------------------

    async def _while_calling(self, call: AttemptCall) -> None:
        """Until the attempt has come back: start beside it, or stop it for, what falls due."""
        while not call.is_done():
            self._send_errands()  # what is skipped meanwhile is told meanwhile
            if await self._start_requested_beside():
                continue
            seen, due = self._changes, await self._due_beside(call)
            if call.is_done():
                return
            if self._changes != seen:  # while the planner was asked: what was due may not be any more
                continue
            if due is None or due.fires_at > workflow.now():
                falls_due = None if due is None else due.fires_at
                wakes = [at for at in (falls_due, self._doubt_at()) if at is not None]
                await self._until_done(call, min(wakes, default=None), seen)
            elif not await self._fell_due(due) and await self._until_done(
                call, workflow.now() + ASK_AFTER_BESIDE, seen
            ):
                await self._forget_gone()

    async def _until_done(self, call: AttemptCall, until: datetime | None, seen: int) -> bool:
        """Wait for the attempt or a change; True if ``until`` came first."""
        timeout = None if until is None else max(until - workflow.now(), timedelta(milliseconds=1))
        try:
            await workflow.wait_condition(
                lambda: call.is_done() or self._changes != seen,
                timeout=timeout,
                timeout_summary=None if until is None else f"until {rfc3339(until)}",
            )
        except TimeoutError:
            return True
        return False

    async def _until_attempt(self, run: RunState, wake: datetime) -> None:
        """A run that waits for its retry is active as well."""
        if await self._start_requested_beside():
            return
        seen, due = self._changes, await self._due_beside(None)
        if self.state.run is not run or self._changes != seen:
            return
        if due is None or due.fires_at >= wake:
            await self._wait(wake)
        elif due.fires_at > workflow.now():
            await self._wait(due.fires_at)
        elif not await self._fell_due(due):
            await self._wait(wake)

    async def _due_beside(self, call: AttemptCall | None) -> PlannedOccurrence | None:
        """The occurrence that may have to run beside the active run, or instead of it."""
        await self._dispel_doubt()
        state, run = self.state, self.state.run
        if not self._may_run_beside(call):
            return None
        due = self._behind_run()
        if due is None and not state.plan_exhausted and not (run and active.is_held(run, workflow.now())):
            job_sources.serve_run(state)
            await self._plan()
            due = self._behind_run() if self._may_run_beside(call) else None
        return due

    def _may_run_beside(self, call: AttemptCall | None) -> bool:
        state = self.state
        if state.definition.concurrency.policy not in ("allow", "replace"):
            return False
        return state.pause is None and not state.deleted and not (call and call.stop_now_reason is not None)

    def _behind_run(self) -> PlannedOccurrence | None:
        """The next planned occurrence that is not the one of the active run."""
        plan, run = self.state.plan, self.state.run
        mine = None if run is None else run.occurrence.scheduled_time
        return next((one for one in plan if one.scheduled_time != mine), None)

    async def _fell_due(self, due: PlannedOccurrence) -> bool:
        """Decide about an occurrence that is due beside an active run; False: it waits for its end."""
        state, now = self.state, workflow.now()
        if due.scheduled_time in state.skips:
            job_sources.serve_run(state)
            job_changes.skip_asked(state, due, now)
            return True
        if due.not_after is not None and due.not_after < now:
            job_sources.serve_run(state)
            job_state.drop_plan(state)  # late by now: the planner settles the stretch as one
            return True
        definition = state.definition
        around = active.runs(state, now)
        decision = gate.decide(definition.concurrency, due.fires_at, around, definition.catch_up.grace)
        if decision is Decision.REPLACE:
            await self._replace_active()
        elif decision is Decision.BESIDE:
            return await self._start_beside(due)
        return decision is Decision.REPLACE

    async def _start_beside(self, due: PlannedOccurrence) -> bool:
        """False: it was not started, and waits for the loop."""
        state = self.state
        aside = job_sources.alone_for(state, due, workflow.now())
        if not await self._run_beside(aside):
            return False
        job_sources.serve_run(state)
        job_sources.mark_served(state, due.scheduled_time)
        return True
