"""Runs that somebody asks for: triggers, redrives and reruns.

Not a workflow itself. A run asked for goes through the gate of its job unless it is forced.
"""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.beside import Beside, bytes_of
    from workflows.changing import refusal
    from workflows.contracts import failures, names
    from workflows.contracts.job import (
        AnsweredRequest,
        ManualRun,
        QueuedRun,
        RedriveRequest,
        StopIntent,
        Triggered,
        TriggerRequest,
    )
    from workflows.contracts.records import ExecutionRow
    from workflows.domain import active, gate, history, job_changes, job_sources, redrives
    from workflows.domain.gate import Decision
    from workflows.domain.waiting import waiting_rows

TRIGGERS_MAX = 100
TRIGGERS_MAX_BYTES = 256 * 1024
"""All that waits has to fit into the input of the next run of the workflow, with everything else."""
REDRIVES_MAX = 100
REDRIVES_MAX_BYTES = 256 * 1024
"""Of redrives that wait, own bodies included: they travel with the job's state."""


class Requested(Beside):
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
        manual = ManualRun(
            request=request.request, at=at, by=request.actor.by, body=request.body, forced=request.force
        )
        decision = self._admitted(forced=request.force)
        job_changes.remember_request(state, manual)
        if decision is Decision.BESIDE:
            aside = job_sources.alone(state)
            job_sources.begin_manual(aside, manual)
            if not await self._run_beside(aside):
                state.requests = [known for known in state.requests if known.id != manual.request]
                raise _not_started()
            return Triggered(execution=row)
        state.triggers.append(manual)
        self._changes += 1
        await self._make_way(decision)
        return Triggered(execution=row)

    @workflow.update(name=names.UPDATE_REDRIVE)
    async def redrive(self, request: RedriveRequest) -> Triggered:
        """Run an occurrence again; one that is under way already is answered and not doubled."""
        state, at = self.state, self._accepted_at(request.actor)
        before = redrives.answered(state, request)
        queued = QueuedRun(
            occurrence=redrives.occurrence_of(state, request),
            attempt=request.attempt,
            story=request.story,
            by=request.actor.by,
            at=at,
            forced=request.force,
        )
        row = _row_of(queued, state.revision)
        if before is not None or self._is_alive(row.key):
            return Triggered(execution=row.model_copy(update={"key": before or row.key}), repeated=True)
        decision = self._admitted(forced=request.force)
        redrives.remember(state, request, row.key)
        if decision is Decision.BESIDE:
            aside = job_sources.alone(state)
            job_sources.begin_redrive(aside, queued)
            if not await self._run_beside(aside):
                redrives.forget(state, request, row.key)
                raise _not_started()
            return Triggered(execution=row)
        state.redrives.append(queued)
        self._changes += 1
        await self._make_way(Decision.WAIT if decision is Decision.REPLACE else decision)
        return Triggered(execution=row)

    @trigger.validator
    def _check_trigger(self, request: TriggerRequest) -> None:
        self._refuse_deleted()
        state, now = self.state, workflow.now()
        if self._known(request) is not None:
            return
        if len(state.triggers) + self._forced_beside() >= TRIGGERS_MAX:
            raise refusal(failures.TOO_MANY_TRIGGERS, f"{TRIGGERS_MAX} manual runs wait or run already")
        if state.triggers and bytes_of(*state.triggers, request) > TRIGGERS_MAX_BYTES:
            raise refusal(failures.TOO_MANY_TRIGGERS, "manual runs with large bodies wait already")
        if request.force or state.definition.concurrency.policy != "forbid":
            return
        if (key := job_changes.active_key(state, now)) is not None:
            raise refusal(failures.RUN_ACTIVE, key)

    @redrive.validator
    def _check_redrive(self, request: RedriveRequest) -> None:
        self._refuse_deleted()
        state = self.state
        known = redrives.answered(state, request) is not None
        if known or self._is_alive(redrives.occurrence_of(state, request).key):
            return
        if len(state.redrives) + self._forced_beside() >= REDRIVES_MAX:
            raise refusal(failures.TOO_MANY_TRIGGERS, f"{REDRIVES_MAX} redrives wait or run already")
        if state.redrives and bytes_of(*state.redrives, request) > REDRIVES_MAX_BYTES:
            raise refusal(failures.TOO_MANY_TRIGGERS, "redrives with large bodies wait already")

    async def _start_requested_beside(self) -> bool:
        """Whether what waits first of what was asked for has got a place beside the loop, which is busy.

        There was no room when it was asked for, or the loop was to take it and took another.
        """
        state = self.state
        if state.deleted or not state.as_of_0_4 or not (state.triggers or state.redrives):
            return False
        first = state.triggers[0] if state.triggers else state.redrives[0]
        if self._admitted(forced=first.forced) is not Decision.BESIDE:
            return False
        aside = job_sources.alone(state)
        if state.triggers:
            job_sources.begin_manual(aside, manual := state.triggers.pop(0))
            started = await self._run_beside(aside)
            if not started:
                state.triggers.insert(0, manual)
        else:
            job_sources.begin_redrive(aside, queued := state.redrives.pop(0))
            started = await self._run_beside(aside)
            if not started:
                state.redrives.insert(0, queued)
        return started

    def _forced_beside(self) -> int:
        """Runs that were forced past the gate, whose number nothing else bounds."""
        return len([row for row in self.state.beside if row.forced])

    def _known(self, request: TriggerRequest) -> AnsweredRequest | None:
        return next((known for known in self.state.requests if known.id == request.request), None)

    def _is_alive(self, key: str) -> bool:
        state = self.state
        alive = {row.key for row in (*waiting_rows(state), *state.beside)}
        return key in alive or (state.run is not None and state.run.occurrence.key == key)

    # -- the gate ----------------------------------------------------------------------------------

    def _admitted(self, *, forced: bool) -> Decision:
        state, now = self.state, workflow.now()
        if forced and job_changes.active_key(state, now) is not None:
            return Decision.BESIDE
        return gate.admit(state.definition.concurrency, active.runs(state, now))

    async def _make_way(self, decision: Decision) -> None:
        """A run was asked for: what is only held is put back, what it replaces is stopped."""
        state, now = self.state, workflow.now()
        if state.run is not None and active.is_held(state.run, now):
            if self._call is not None:
                self._call.stop("if_held", "triggered")
            else:
                stop = StopIntent(intent="if_held", reason="triggered")
                job_changes.stop_waiting(state, state.run, stop, now)
        elif decision is Decision.REPLACE:
            await self._replace_active()

    async def _replace_active(self) -> None:
        """Stop what is active, wherever it is; its end is told by itself."""
        state = self.state
        if self._call is not None:
            self._call.stop("now", history.REPLACED)
        elif state.run is not None:
            job_changes.replace(state, state.run, workflow.now())
            self._changes += 1
        for row in [row for row in state.beside if not row.forced]:
            await self._stop_beside(row, history.REPLACED)


def _row_of(queued: QueuedRun, revision: int) -> ExecutionRow:
    occurrence = queued.occurrence
    return ExecutionRow(
        key=occurrence.key,
        scheduled_time=occurrence.scheduled_time,
        fires_at=occurrence.fires_at,
        trigger=occurrence.trigger,
        outcome="scheduled",
        seq=0,
        revision=revision,
    )


def _not_started() -> Exception:
    return refusal(failures.JOB_BUSY, "the run could not be started; ask again")
