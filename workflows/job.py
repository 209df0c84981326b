"""The job workflow: the life of a job, one occurrence after the other (architecture.md, section 2).

It is the only writer of its state. What happens to the state is in ``domain.job_state``; this module
says when, and reaches the world through activities. Zone arithmetic never happens here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.attempting import Attempting
    from workflows.contracts import failures, names
    from workflows.contracts.actor import Actor
    from workflows.contracts.job import (
        RECENT_REQUESTS,
        SKIPS_MAX,
        AnsweredRequest,
        BesideRun,
        CancelRequest,
        DeleteRequest,
        EditRequest,
        InFlight,
        JobChanged,
        JobState,
        JobView,
        ManualRun,
        PauseRequest,
        ResumeRequest,
        RunEnded,
        SkipRequest,
        StopIntent,
        Triggered,
        TriggerRequest,
    )
    from workflows.contracts.planning import Plan, PlannedOccurrence
    from workflows.contracts.records import ExecutionRow, Pause
    from workflows.domain import details, job_changes, job_records, job_state, look_ahead

STOP_WAIT = timedelta(seconds=2)
"""How long a stop waits for the worker's word before it answers ``stopping``."""
PLAN_AGAIN = timedelta(seconds=30)
TRIGGERS_MAX = 100


@workflow.defn(name=names.JOB_WORKFLOW)
class JobWorkflow(Attempting):
    @workflow.init
    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._asked_behind: datetime | None = None
        """The occurrence behind which the planner knew no more when it was asked last."""
        self._row_lacks_plan = False
        """A change that dropped the plan told the index, which does not know yet when the job runs next."""

    @workflow.run
    async def run(self, _: JobState) -> None:
        state = self.state
        while not (state.deleted and state.run is None and not state.records):
            if self._history_is_long():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(state)
            workflow.set_current_details(details.describe(state))
            self._send_errands()
            if state.run is not None:
                await self._attempt(state.run)
            elif state.deleted:
                await self._hand_over()
            else:
                await self._choose()
        workflow.set_current_details(details.describe(state))
        await self._errands_done()
        await workflow.wait_condition(workflow.all_handlers_finished)

    # -- what to do next ---------------------------------------------------------------------------

    async def _choose(self) -> None:
        """Take the next occurrence of the sources, or wait until there is one."""
        state = self.state
        if state.triggers:
            job_state.begin_manual(state, state.triggers.pop(0))
        elif state.pause is not None:
            await self._rest_paused(state.pause.until)
        elif state.plan_exhausted and not state.plan:
            await self._rest_completed()
        elif job_state.clock_was_set_back(state, workflow.now()):
            workflow.logger.warning("the server's clock was set back: planned again from now")
        elif state.plan:
            await self._take_planned(state.plan[0])
        else:
            await self._plan()

    async def _take_planned(self, due: PlannedOccurrence) -> None:
        state, now = self.state, workflow.now()
        if due.scheduled_time in state.skips:
            if due.fires_at <= now or await self._wait(due.fires_at):
                job_changes.skip_asked(state, due, workflow.now())
            return
        if due.not_after is not None and due.not_after < now:
            job_state.drop_plan(state)  # late by now: the planner settles the stretch as one
            return
        wake = self._wake_at(due.fires_at)
        if wake is None:
            if len(state.plan) == 1 and not state.plan_exhausted and self._asked_behind != due.scheduled_time:
                self._asked_behind = due.scheduled_time
                await self._plan()  # what falls due while it runs must be known when it ends
            else:
                job_state.begin_planned(state, due)
            return
        schedule = state.definition.schedule
        zone_bound = schedule.cron is not None or schedule.timezone is not None
        longest = look_ahead.longest_sleep(zone_bound, state.tenant, state.ref)
        if wake - now <= longest:
            await self._wait(wake)
        elif await self._wait(now + longest):
            job_state.drop_plan(state)

    async def _rest_paused(self, until: datetime | None) -> None:
        if await self._wait(until) and until is not None and self.state.pause is not None:
            job_changes.end_pause(self.state, until)
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

    async def _plan(self) -> None:
        state, seen = self.state, self._changes
        asked = job_state.plan_input(state, workflow.now())
        try:
            plan = await workflow.execute_local_activity(
                names.PLAN_ACTIVITY,
                asked,
                result_type=Plan,
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_attempts=3),
            )
        except ActivityError as failure:
            await self._cannot_plan(failure.cause, seen)
            return
        if self._changes != seen:
            return
        job_state.adopt(state, plan, asked.now)
        if self._row_lacks_plan:
            self._row_lacks_plan = False
            if state.plan:
                self._publish()

    async def _cannot_plan(self, cause: BaseException | None, seen: int) -> None:
        """A schedule that broke after it was accepted (its zone vanished) pauses the job, loudly."""
        if not (isinstance(cause, ApplicationError) and cause.type == failures.RULE_BROKEN):
            await self._sleep(workflow.now() + PLAN_AGAIN, seen)
        elif self._changes == seen:
            reason = f"the schedule cannot be planned any more: {cause.message}"
            self.state.pause = Pause(since=workflow.now(), reason=reason, by="carillon")
            self._publish()

    # -- updates -----------------------------------------------------------------------------------

    @workflow.update(name=names.UPDATE_PAUSE)
    async def pause(self, request: PauseRequest) -> JobChanged:
        """Stop what is held; a second pause changes reason and end of the first."""
        if self._is_repeated(request.actor):
            return self._unchanged()
        state, actor = self.state, request.actor
        since = state.pause.since if state.pause else actor.at
        state.pause = Pause(since=since, reason=request.reason, until=request.until, by=actor.by)
        self._accept(actor)
        return await self._stopped("if_held", "paused")

    @workflow.update(name=names.UPDATE_RESUME)
    async def resume(self, request: ResumeRequest) -> JobChanged:
        if self.state.pause is not None and not self._is_repeated(request.actor):
            job_changes.end_pause(self.state, self._accepted_at(request.actor))
            self._row_lacks_plan = True
            self._accept(request.actor)
        return JobChanged(view=self.view())

    @workflow.update(name=names.UPDATE_EDIT)
    async def edit(self, request: EditRequest) -> JobChanged:
        """Stop what is held under the old definition; a run in flight keeps the one it started with."""
        if self._is_repeated(request.actor):
            return self._unchanged()
        at = self._accepted_at(request.actor)
        job_changes.edit(self.state, request.definition, at, calling=self._call is not None)
        self._row_lacks_plan = True
        self._accept(request.actor)
        return await self._stopped("if_held", "edited")

    @workflow.update(name=names.UPDATE_TRIGGER)
    async def trigger(self, request: TriggerRequest) -> Triggered:
        """Run once, now, before anything that is only held. A repeated request changes nothing."""
        state, at = self.state, self._accepted_at(request.actor)
        row = ExecutionRow(
            key=names.manual_key(state.tenant, state.ref, request.request),
            scheduled_time=at,
            fires_at=at,
            trigger="manual",
            outcome="scheduled",
            seq=0,
            revision=state.revision,
        )
        if (known := self._known(request)) is not None:
            first = known.at or at
            repeated = row.model_copy(update={"scheduled_time": first, "fires_at": first})
            return Triggered(execution=repeated, repeated=True)
        manual = ManualRun(request=request.request, at=at, by=request.actor.by, body=request.body)
        if request.force and job_changes.active_key(state, workflow.now()) is not None:
            return await self._run_beside(manual, row)
        job_changes.remember_request(state, manual)
        state.triggers.append(manual)
        self._changes += 1
        if self._call is not None:
            self._call.stop("if_held", "triggered")
        elif state.run is not None:
            stop = StopIntent(intent="if_held", reason="triggered")
            job_changes.stop_waiting(state, state.run, stop, workflow.now())
        return Triggered(execution=row)

    async def _run_beside(self, manual: ManualRun, row: ExecutionRow) -> Triggered:
        """A workflow of its own runs it; the job hears of its end by a signal."""
        state = self.state
        job_changes.remember_request(state, manual)
        state.beside = [*state.beside, BesideRun(**row.model_dump())]
        try:
            await workflow.execute_local_activity(
                names.START_RUN_ACTIVITY,
                job_changes.beside(state, manual),
                start_to_close_timeout=timedelta(seconds=5),
                retry_policy=RetryPolicy(maximum_attempts=3),
            )
        except ActivityError:
            state.beside = [known for known in state.beside if known.key != row.key]
            state.requests = [known for known in state.requests if known.id != manual.request]
            raise _refusal(failures.JOB_BUSY, "the run could not be started; ask again") from None
        return Triggered(execution=row)

    @workflow.update(name=names.UPDATE_SKIP)
    async def skip(self, request: SkipRequest) -> JobChanged:
        """Leave out one future occurrence, or take that back until it is due."""
        if self._is_repeated(request.actor):
            return self._unchanged()
        job_changes.skip(self.state, request.scheduled_time, skipped=request.skipped)
        self._accept(request.actor)
        run = self.state.run
        if run is None or run.occurrence.scheduled_time != request.scheduled_time:
            return self._unchanged()
        changed = await self._stopped("if_held", "skipped")
        if changed.in_flight or request.scheduled_time in self.state.served:
            job_changes.skip(self.state, request.scheduled_time, skipped=False)  # it had fired already
            raise _refusal(failures.RUN_ACTIVE, run.occurrence.key)
        return changed

    @workflow.update(name=names.UPDATE_CANCEL)
    async def cancel(self, request: CancelRequest) -> JobChanged:
        """Stop an execution wherever it is: waiting, held, in flight or beside the loop."""
        if self._is_repeated(request.actor):
            return self._unchanged()
        state, call = self.state, self._call
        self._accept(request.actor)
        if call is not None and call.inp.occurrence.key == request.key:
            return await self._stopped("now", "asked")
        if any(row.key == request.key for row in state.beside):
            await self._stop_beside(request.key, "asked")
            return JobChanged(view=self.view(), in_flight=[InFlight(key=request.key, state="stopping")])
        job_changes.cancel_waiting(state, request.key, workflow.now())
        return self._unchanged()

    async def _stop_beside(self, key: str, reason: str) -> None:
        request = key.rpartition(":manual-")[2]
        handle = workflow.get_external_workflow_handle(
            names.run_workflow_id(self.state.tenant, self.state.ref, request)
        )
        try:
            await handle.signal(names.SIGNAL_STOP, reason)
        except ApplicationError:
            self.state.beside = [row for row in self.state.beside if row.key != key]  # it is gone

    def _unchanged(self) -> JobChanged:
        return JobChanged(view=self.view())

    @workflow.update(name=names.UPDATE_DELETE)
    async def delete(self, request: DeleteRequest) -> JobChanged:
        """The id is free at once; a run in flight finishes its attempt, or is broken off."""
        self.state.deleted = True
        self.state.triggers = []
        self._accept(request.actor)
        if request.running == "cancel":
            for row in self.state.beside:
                await self._stop_beside(row.key, "deleted")
        return await self._stopped("now" if request.running == "cancel" else "if_held", "deleted")

    @pause.validator
    def _check_pause(self, request: PauseRequest) -> None:
        self._refuse_deleted()

    @resume.validator
    def _check_resume(self, request: ResumeRequest) -> None:
        self._refuse_deleted()

    @edit.validator
    def _check_edit(self, request: EditRequest) -> None:
        self._refuse_deleted()
        if not self._is_repeated(request.actor):
            self._refuse_revision(request.if_revision)

    @delete.validator
    def _check_delete(self, request: DeleteRequest) -> None:
        self._refuse_deleted()
        self._refuse_revision(request.if_revision)

    @trigger.validator
    def _check_trigger(self, request: TriggerRequest) -> None:
        self._refuse_deleted()
        if self._known(request) is not None:
            return
        if len(self.state.triggers) + len(self.state.beside) >= TRIGGERS_MAX:
            raise _refusal(failures.TOO_MANY_TRIGGERS, f"{TRIGGERS_MAX} manual runs wait or run already")
        if request.force:
            return
        if (active := job_changes.active_key(self.state, workflow.now())) is not None:
            raise _refusal(failures.RUN_ACTIVE, active)

    @skip.validator
    def _check_skip(self, request: SkipRequest) -> None:
        self._refuse_deleted()
        state, at = self.state, request.scheduled_time
        if self._is_repeated(request.actor):
            return
        if at <= state.cursor:
            raise _refusal(failures.NO_SUCH_OCCURRENCE, "it has been served already")
        run = state.run
        if run is not None and run.occurrence.scheduled_time == at and run.fires_at <= workflow.now():
            raise _refusal(failures.RUN_ACTIVE, run.occurrence.key)
        if request.skipped and len(state.skips) >= SKIPS_MAX:
            raise _refusal(failures.TOO_MANY_SKIPS, f"{SKIPS_MAX} occurrences are to be skipped already")

    @cancel.validator
    def _check_cancel(self, request: CancelRequest) -> None:
        state, key = self.state, request.key
        waiting = (names.manual_key(state.tenant, state.ref, one.request) for one in state.triggers)
        alive = {*waiting, *(row.key for row in state.beside)}
        if state.run is not None:
            alive.add(state.run.occurrence.key)
        if key not in alive and not self._is_repeated(request.actor):
            raise _refusal(failures.EXECUTION_ENDED, key)

    def _known(self, request: TriggerRequest) -> AnsweredRequest | None:
        return next((known for known in self.state.requests if known.id == request.request), None)

    def _is_repeated(self, actor: Actor) -> bool:
        """The call was answered before, perhaps by a run of this workflow that has continued as new."""
        return bool(actor.operation) and actor.operation in self.state.operations

    def _refuse_deleted(self) -> None:
        if self.state.deleted:
            raise _refusal(failures.JOB_DELETED, f"job {self.state.job} is deleted")

    def _refuse_revision(self, wanted: int | None) -> None:
        if wanted is not None and wanted != self.state.revision:
            raise _refusal(failures.REVISION_MISMATCH, str(self.state.revision))

    # -- stops and changes -------------------------------------------------------------------------

    async def _stopped(self, intent: Literal["if_held", "now"], reason: str) -> JobChanged:
        """Stop the run there is and wait, bounded, for the worker's word: nothing in the answer's
        ``in_flight`` means that no request is written after it."""
        call, run = self._call, self.state.run
        if call is None:
            if run is not None and reason != "edited":
                stop = StopIntent(intent=intent, reason=reason)
                job_changes.stop_waiting(self.state, run, stop, workflow.now())
            return JobChanged(view=self.view())
        if reason == "paused" and call.inp.occurrence.trigger == "manual":
            return JobChanged(view=self.view())  # a paused job can be triggered
        call.stop(intent, reason)
        accepted = self.view()
        in_flight: list[InFlight] = []
        try:
            await workflow.wait_condition(
                lambda: self._call is not call or (call.fired and intent == "if_held"), timeout=STOP_WAIT
            )
        except TimeoutError:
            in_flight.append(InFlight(key=call.inp.occurrence.key, state="stopping"))
        else:
            given_back = self.state.run is run and run is not None and run.deliveries > 0
            if self._call is call or given_back:  # its worker gave it back or was lost: it is sent again
                in_flight.append(InFlight(key=call.inp.occurrence.key, state="in_flight"))
        present = self.view()
        # Others may have changed the job meanwhile: this answer is for the revision that it made.
        kept = ("revision", "change", "definition", "status", "pause", "updated_at")
        mine = {name: getattr(accepted, name) for name in kept}
        return JobChanged(view=present.model_copy(update=mine), in_flight=in_flight)

    def _accepted_at(self, actor: Actor) -> datetime:
        return min(actor.at, workflow.now())

    def _accept(self, actor: Actor) -> None:
        """A change was accepted: wake the loop and tell the index."""
        if actor.operation:
            self.state.operations = [*self.state.operations[1 - RECENT_REQUESTS :], actor.operation]
        self.state.updated_at = max(self.state.updated_at, self._accepted_at(actor))
        self._changes += 1
        self._publish()

    def _publish(self) -> None:
        """Count a change of what the index shows, and write it by an activity of its own."""
        self.state.change += 1
        job_records.record_job(self.state)
        self._start_flush()

    # -- words, questions --------------------------------------------------------------------------

    @workflow.signal(name=names.SIGNAL_ENDED)
    def ended(self, end: RunEnded) -> None:
        """A run beside the loop tells how it ended."""
        job_changes.ended_beside(self.state, end)

    @workflow.query(name=names.QUERY_VIEW)
    def view(self) -> JobView:
        return details.view(self.state, calling=self._call is not None)


def _refusal(kind: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=kind, non_retryable=True)
