"""What clients change of a job: its updates, and the bounded wait for what they have to stop.

Not a workflow itself; what comes next is decided in ``workflows.job``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import failures, names
    from workflows.contracts.actor import Actor
    from workflows.contracts.definition import JobDefinition
    from workflows.contracts.job import (
        RECENT_REQUESTS,
        SKIPS_MAX,
        BesideRun,
        CancelRequest,
        DeleteRequest,
        EditRequest,
        InFlight,
        JobChanged,
        JobState,
        JobView,
        PauseRequest,
        ResumeRequest,
        SkipRequest,
        Standing,
        StopIntent,
    )
    from workflows.contracts.records import Pause
    from workflows.domain import details, job_changes, job_records
    from workflows.domain.active import obeys_pause
    from workflows.domain.waiting import waiting_rows
    from workflows.watched import Watched


class Changing(Watched):
    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._row_lacks_plan = False
        """A change that dropped the plan told the index, which does not know yet when the job runs next."""
        self._starting: set[str] = set()
        """Keys of runs beside the loop that are being started: nothing can be told to them yet."""
        self._telling: set[asyncio.Task[None]] = set()
        """Runs beside the loop that are being told how their job stands."""

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
        self._tell_beside()
        return await self._stopped("if_held", "paused")

    @workflow.update(name=names.UPDATE_RESUME)
    async def resume(self, request: ResumeRequest) -> JobChanged:
        if self.state.pause is not None and not self._is_repeated(request.actor):
            job_changes.end_pause(self.state, self._accepted_at(request.actor))
            self._row_lacks_plan = True
            self._accept(request.actor)
            self._tell_beside()
        return JobChanged(view=self.view())

    @workflow.update(name=names.UPDATE_EDIT)
    async def edit(self, request: EditRequest) -> JobChanged:
        """Stop what is held under the old definition; a run in flight keeps the one it started with."""
        if self._is_repeated(request.actor):
            return self._unchanged()
        at = self._accepted_at(request.actor)
        job_changes.edit(
            self.state,
            request.definition,
            at,
            calling=self._call is not None,
            reaches_back=request.reaches_back,
        )
        self._row_lacks_plan = True
        self._accept(request.actor)
        self._tell_beside(request.definition)
        return await self._stopped("if_held", "edited")

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
        key = run.occurrence.key
        others = self.state.as_of_0_4  # what is active beside it is named, too
        fired = any(one.key == key or not others for one in changed.in_flight)
        if fired or request.scheduled_time in self.state.served:
            job_changes.skip(self.state, request.scheduled_time, skipped=False)  # it had fired already
            raise refusal(failures.RUN_ACTIVE, key)
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
        if (aside := next((row for row in state.beside if row.key == request.key), None)) is not None:
            await self._stop_beside(aside, "asked")
            return JobChanged(view=self.view(), in_flight=[InFlight(key=request.key, state="stopping")])
        job_changes.cancel_waiting(state, request.key, workflow.now())
        return self._unchanged()

    async def _stop_beside(self, row: BesideRun, reason: str) -> None:
        await workflow.wait_condition(lambda: row.key not in self._starting)
        if job_changes.stop_when_sure(self.state, row, reason):
            return
        try:
            await self._handle_of(row).signal(names.SIGNAL_STOP, reason)
        except ApplicationError:  # it is gone
            job_changes.forget_beside(self.state, row, workflow.now())

    def _tell_beside(self, definition: JobDefinition | None = None) -> None:
        """A change of the job means the same for runs beside the loop. Nobody waits for it."""
        for row in self.state.beside if self.state.as_of_0_4 else []:
            if row.key not in self._starting and row.unsure is None:  # else it is told when it has begun
                self._tell_standing(row, definition)

    def _tell_standing(self, row: BesideRun, definition: JobDefinition | None = None) -> None:
        state = self.state
        if not state.deleted and definition is None and not obeys_pause(row.trigger):
            return
        standing = Standing(
            pause=state.pause, deleted=state.deleted, definition=definition, revision=state.revision
        )
        task = asyncio.create_task(self._signal_standing(row, standing))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _signal_standing(self, row: BesideRun, standing: Standing) -> None:
        with suppress(ApplicationError):  # it has ended
            await self._handle_of(row).signal(names.SIGNAL_STANDING, standing)

    def _handle_of(self, row: BesideRun) -> workflow.ExternalWorkflowHandle[Any]:
        name = row.name or names.suffix_of(row.key)
        return workflow.get_external_workflow_handle(
            names.run_workflow_id(self.state.tenant, self.state.ref, name)
        )

    @workflow.query(name=names.QUERY_VIEW)
    def view(self) -> JobView:
        return details.view(self.state, calling=self._call is not None)

    def _unchanged(self) -> JobChanged:
        return JobChanged(view=self.view())

    @workflow.update(name=names.UPDATE_DELETE)
    async def delete(self, request: DeleteRequest) -> JobChanged:
        """The id is free at once; a run in flight finishes its attempt, or is broken off."""
        job_changes.delete(self.state, workflow.now())
        self._accept(request.actor)
        if request.running == "cancel":
            for row in list(self.state.beside):
                await self._stop_beside(row, "deleted")
        else:
            self._tell_beside()
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

    @skip.validator
    def _check_skip(self, request: SkipRequest) -> None:
        self._refuse_deleted()
        state, at = self.state, request.scheduled_time
        if self._is_repeated(request.actor):
            return
        if at <= state.cursor:
            raise refusal(failures.NO_SUCH_OCCURRENCE, "it has been served already")
        run = state.run
        if run is not None and run.occurrence.scheduled_time == at and run.fires_at <= workflow.now():
            raise refusal(failures.RUN_ACTIVE, run.occurrence.key)
        key = names.scheduled_key(state.tenant, state.ref, at)
        if key in self._starting:
            raise refusal(failures.RUN_ACTIVE, key)
        if request.skipped and len(state.skips) >= SKIPS_MAX:
            raise refusal(failures.TOO_MANY_SKIPS, f"{SKIPS_MAX} occurrences are to be skipped already")

    @cancel.validator
    def _check_cancel(self, request: CancelRequest) -> None:
        state, key = self.state, request.key
        alive = {row.key for row in (*waiting_rows(state), *state.beside)}
        if state.run is not None:
            alive.add(state.run.occurrence.key)
        if job_changes.in_line(state, key, workflow.now()) is not None and len(state.skips) < SKIPS_MAX:
            return
        if key not in alive and not self._is_repeated(request.actor):
            raise refusal(failures.EXECUTION_ENDED, key)

    def _is_repeated(self, actor: Actor) -> bool:
        """The call was answered before, perhaps by a run of this workflow that has continued as new."""
        return bool(actor.operation) and actor.operation in self.state.operations

    def _refuse_deleted(self) -> None:
        if self.state.deleted:
            raise refusal(failures.JOB_DELETED, f"job {self.state.job} is deleted")

    def _refuse_revision(self, wanted: int | None) -> None:
        if wanted is not None and wanted != self.state.revision:
            raise refusal(failures.REVISION_MISMATCH, str(self.state.revision))

    # -- stops and changes -------------------------------------------------------------------------

    async def _stopped(self, intent: Literal["if_held", "now"], reason: str) -> JobChanged:
        """Stop the run there is and wait, bounded, for the worker's word: nothing in the answer's
        ``in_flight`` means that no request is written after it."""
        call, run = self._call, self.state.run
        word: Literal["in_flight", "stopping"] = "stopping" if intent == "now" else "in_flight"
        aside = [InFlight(key=row.key, state=word) for row in self.state.beside]
        if call is None:
            if run is not None and reason != "edited":
                stop = StopIntent(intent=intent, reason=reason)
                job_changes.stop_waiting(self.state, run, stop, workflow.now())
            if run is not None and self.state.run is run and run.deliveries > 0:  # it is sent again
                aside = [InFlight(key=run.occurrence.key, state="in_flight"), *aside]
            return JobChanged(view=self.view(), in_flight=aside)
        if reason == "paused" and not obeys_pause(call.inp.occurrence.trigger):
            return JobChanged(view=self.view(), in_flight=aside)  # a paused job can be triggered
        call.stop(intent, reason)
        accepted = self.view()
        in_flight: list[InFlight] = []
        try:
            await workflow.wait_condition(
                lambda: self._call is not call or (call.fired and intent == "if_held"),
                timeout=job_changes.STOP_WAIT,
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
        return JobChanged(view=present.model_copy(update=mine), in_flight=[*in_flight, *aside])

    def _accepted_at(self, actor: Actor) -> datetime:
        return min(actor.at, workflow.now())

    def _accept(self, actor: Actor) -> None:
        """A change was accepted: wake the loop and tell the index."""
        if actor.operation:
            self.state.operations = [*self.state.operations[1 - RECENT_REQUESTS :], actor.operation]
        self.state.updated_at = max(self.state.updated_at, self._accepted_at(actor))
        self._changes += 1
        self._publish()
        self._send_errands()
        self._watch_success()

    def _publish(self) -> None:
        """Count a change of what the index shows, and write it by an activity of its own."""
        job_records.publish(self.state)
        self._start_flush()


def refusal(kind: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=kind, non_retryable=True)
