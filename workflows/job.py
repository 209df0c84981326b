"""The job workflow: the life of a job, one occurrence after the other (docs/architecture.md).

It is the only writer of its state. What happens to the state is in ``domain.job_state``; this module
says when, and reaches the world through activities. Zone arithmetic never happens here.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.backfilling import Backfilling
    from workflows.beside import ASK_AFTER_BESIDE
    from workflows.contracts import names
    from workflows.contracts.job import JobState
    from workflows.contracts.planning import PlannedOccurrence
    from workflows.contracts.records import Pause
    from workflows.domain import (
        active,
        details,
        gate,
        incidents,
        job_changes,
        job_sources,
        job_state,
        look_ahead,
        overlap,
    )
    from workflows.domain.gate import Decision

LOOP_TIMEOUT = timedelta(minutes=10)
"""Longest time-out of a run in the loop of a job that allows others beside it."""
PLAN_AGAIN = timedelta(seconds=30)


@workflow.defn(name=names.JOB_WORKFLOW)
class JobWorkflow(Backfilling):
    @workflow.init
    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._asked_behind: datetime | None = None
        """The occurrence behind which the planner knew no more when it was asked last."""

    @workflow.run
    async def run(self, _: JobState) -> None:
        state = self.state
        while not (state.deleted and state.run is None and self._is_told()):
            self._settle_group()
            if self._history_is_long():
                await workflow.wait_condition(workflow.all_handlers_finished)
                state.runs_errands = state.minds_beside = True
                state.keeps_overdue = state.stops_unsure = True
                state.keeps_line = state.as_of_0_4 = True
                workflow.continue_as_new(state)
            workflow.set_current_details(details.describe(state))
            self._send_errands()
            self._watch_success()
            if state.run is not None:
                await self._attempt(state.run)
            elif state.deleted:
                await self._hand_over()
            else:
                await self._choose()
        workflow.set_current_details(details.describe(state))
        incidents.gone(state, workflow.now())
        await self._last_errands_done()
        await workflow.wait_condition(workflow.all_handlers_finished)

    # -- what to do next ---------------------------------------------------------------------------

    async def _choose(self) -> None:
        """Take the next occurrence of the sources, or wait until there is one."""
        state = self.state
        if state.triggers or state.redrives:
            await self._take_requested()
        elif state.pause is not None:
            await self._rest_paused(state.pause)
        elif self._take_backfill():
            return
        elif state.plan_exhausted and not state.plan:
            await self._rest_completed()
        elif job_state.clock_was_set_back(state, workflow.now()):
            workflow.logger.warning("the server's clock was set back: planned again from now")
        elif state.plan:
            await self._take_planned(state.plan[0])
        elif not await self._plan() and state.pause is None:
            await self._sleep(workflow.now() + PLAN_AGAIN, self._changes)

    async def _take_requested(self) -> None:
        """Triggers and redrives go first; what still runs beside the loop may be in their way."""
        state = self.state
        first = state.triggers[0] if state.triggers else state.redrives[0]
        decision = Decision.RUN
        if not first.forced:
            decision = gate.admit(state.definition.concurrency, active.beside(state))
        if not await self._way_is_free(decision):
            return
        if state.triggers:
            job_sources.begin_manual(state, state.triggers.pop(0))
        else:
            job_sources.begin_redrive(state, state.redrives.pop(0))

    async def _take_planned(self, due: PlannedOccurrence) -> None:
        state, now = self.state, workflow.now()
        if due.scheduled_time in state.skips:
            if due.fires_at <= now or await self._wait(due.fires_at):
                job_changes.skip_asked(state, due, workflow.now())
            return
        if due.not_after is not None and due.not_after < now:
            job_state.drop_plan(state)  # late by now: the planner settles the stretch as one
            return
        when_due = self._beside_is_in_the_way() or self._keeps_loop_free()
        wake = due.fires_at if when_due else self._wake_at(due.fires_at)
        if wake is None or wake <= now:
            if when_due:
                await self._decide(due)
            elif (
                len(state.plan) == 1 and not state.plan_exhausted and self._asked_behind != due.scheduled_time
            ):
                self._asked_behind = due.scheduled_time
                await self._plan()  # what falls due while it runs must be known when it ends
            else:
                job_sources.begin_planned(state, due, now)
            return
        schedule = state.definition.schedule
        zone_bound = schedule.cron is not None or schedule.timezone is not None
        longest = look_ahead.longest_sleep(zone_bound, state.tenant, state.ref)
        if wake - now <= longest:
            await self._wait(wake)
        elif await self._wait(now + longest):
            job_state.drop_plan(state)

    def _beside_is_in_the_way(self) -> bool:
        """Runs beside the loop leave it no room: under ``allow`` all places are taken, under the others
        they are left over from another policy."""
        concurrency, beside = self.state.definition.concurrency, active.beside(self.state)
        return bool(beside) and (concurrency.policy != "allow" or len(beside) >= concurrency.limit)

    def _keeps_loop_free(self) -> bool:
        """A run that may last long would, in the loop, let the history grow by all that starts beside it."""
        definition = self.state.definition
        return definition.concurrency.policy == "allow" and definition.timeout > LOOP_TIMEOUT

    async def _decide(self, due: PlannedOccurrence) -> None:
        """A decision that depends on the present is taken when the occurrence is due, not before."""
        state, now = self.state, workflow.now()
        beside = active.beside(state)
        definition = state.definition
        decision = gate.decide(definition.concurrency, due.fires_at, beside, definition.catch_up.grace)
        if decision is Decision.SKIP:
            overlap.skip_first(state, now)
        elif not beside or decision is Decision.BESIDE:
            seen = self._changes
            started = self._keeps_loop_free() and await self._start_beside(due)
            if not started and self._changes == seen:
                job_sources.begin_planned(state, due, now)
        elif await self._way_is_free(decision):
            job_sources.begin_planned(state, due, now)
        else:
            overlap.wait_for(state, beside, now)

    async def _way_is_free(self, decision: Decision) -> bool:
        """Whether the loop may take its next run; waits for a change if runs beside it are in the way."""
        if decision in (Decision.RUN, Decision.BESIDE):
            return True
        if decision is Decision.REPLACE:
            await self._replace_active()
        if await self._wait(workflow.now() + ASK_AFTER_BESIDE):
            await self._forget_gone()
        return False

    async def _rest_paused(self, pause: Pause) -> None:
        state = self.state
        if state.passed_until is not None and state.runs_errands:
            # an earlier stretch is counted still; nothing later than it is looked at
            if not await self._plan(as_of=state.passed_until):
                await self._sleep(workflow.now() + PLAN_AGAIN, self._changes)
        elif await self._wait(pause.until) and pause.until is not None and state.pause is not None:
            job_changes.end_pause(state, pause.until)
            self._row_lacks_plan = True
            self._publish()

    async def _rest_completed(self) -> None:
        state = self.state
        if state.completed_at is None:
            state.completed_at = workflow.now()
            self._publish()
        keep = state.definition.delete_after
        if await self._wait(None if keep is None else state.completed_at + keep) and keep is not None:
            state.deleted = True
            self._publish()
