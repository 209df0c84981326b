"""Runs that somebody asks for: triggers, redrives and reruns; and runs beside the loop.

Not a workflow itself. A run asked for goes through the gate of its job unless it is forced.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from workflows.changing import Changing, refusal
    from workflows.contracts import failures, names
    from workflows.contracts.base import Contract
    from workflows.contracts.job import (
        AnsweredRequest,
        BesideRun,
        JobState,
        ManualRun,
        QueuedRun,
        RedriveRequest,
        RunEnded,
        StopIntent,
        Triggered,
        TriggerRequest,
    )
    from workflows.contracts.records import ExecutionRow
    from workflows.domain import active, gate, history, job_changes, job_sources, letters, redrives
    from workflows.domain.gate import Decision
    from workflows.domain.waiting import waiting_rows

TRIGGERS_MAX = 100
TRIGGERS_MAX_BYTES = 256 * 1024
"""All that waits has to fit into the input of the next run of the workflow, with everything else."""
REDRIVES_MAX = 100
REDRIVES_MAX_BYTES = 256 * 1024
"""Of redrives that wait, own bodies included: they travel with the job's state."""
START_WITHIN = timedelta(seconds=5)
STARTED_WITHIN = timedelta(seconds=20)
"""All tries to start a run beside the loop; what stops it waits as long."""
ALIVE_WITHIN = timedelta(seconds=10)
ASK_AFTER_BESIDE = timedelta(minutes=1)
"""How long runs beside the loop may hold up another before the job asks whether they are alive."""


class Requested(Changing):
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
        if state.triggers and _bytes(*state.triggers, request) > TRIGGERS_MAX_BYTES:
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
        if state.redrives and _bytes(*state.redrives, request) > REDRIVES_MAX_BYTES:
            raise refusal(failures.TOO_MANY_TRIGGERS, "redrives with large bodies wait already")

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

    # -- runs beside the loop ----------------------------------------------------------------------

    async def _run_beside(self, aside: JobState) -> bool:
        """A workflow of its own does the run of ``aside``; the job hears of its end by a signal.

        False: it could not be started, and nothing has changed.
        """
        state, run = self.state, aside.run
        assert run is not None
        job_sources.set_beside(run)
        row = job_sources.beside_row(state, run)
        state.beside = [*state.beside, row]
        self._starting.add(row.key)
        try:
            await self._ask(
                names.START_RUN_ACTIVITY,
                aside,
                each=START_WITHIN,
                at_all=STARTED_WITHIN,
                summary=f"start {names.suffix_of(row.key)} beside"[:200],
            )
        except ActivityError:
            lives = len(state.beside)
            state.beside = [known for known in state.beside if known.key != row.key]
            return len(state.beside) == lives  # it has told its end: only the word of its start was lost
        finally:
            self._starting.discard(row.key)
        return True

    @workflow.signal(name=names.SIGNAL_ENDED)
    def ended(self, end: RunEnded) -> None:
        """A run beside the loop tells how it ended."""
        row = next((row for row in self.state.beside if row.key == end.last_run.key), None)
        was_paused = self.state.pause is not None
        job_changes.ended_beside(self.state, end)
        self._send_errands()
        if self.state.pause is not None and not was_paused:
            self._paused_by_failures()
        if row is not None and not row.forced:
            self._changes += 1  # somebody may wait for its place

    @workflow.signal(name=names.SIGNAL_LETTER_CLOSED)
    def letter_closed(self, key: str) -> None:
        """A dead letter of this job is not open any more."""
        letters.closed(self.state, key)

    def _paused_by_failures(self) -> None:
        """A run beside the loop was one failure too many: what is held stops as at any pause."""
        self._changes += 1
        self._start_flush()
        call, run = self._call, self.state.run
        if call is not None and active.is_planned(call.inp.occurrence.trigger):
            call.stop("if_held", "paused")
        elif call is None and run is not None:
            stop = StopIntent(intent="if_held", reason="paused")
            job_changes.stop_waiting(self.state, run, stop, workflow.now())

    async def _forget_gone(self) -> None:
        """Ask after runs that hold back another; one that was terminated will never tell its end."""
        rows = [row for row in self.state.beside if not row.forced and row.key not in self._starting]
        try:
            alive = await workflow.execute_activity(
                names.RUNS_ALIVE_ACTIVITY,
                [names.run_workflow_id(self.state.tenant, self.state.ref, _name_of(row)) for row in rows],
                result_type=list[bool],
                start_to_close_timeout=ALIVE_WITHIN,
                schedule_to_close_timeout=3 * ALIVE_WITHIN,
            )
        except ActivityError:
            return
        for row, lives in zip(rows, alive, strict=True):
            if not lives:
                job_changes.lost_beside(self.state, row, workflow.now())


def _bytes(*payloads: Contract) -> int:
    return sum(len(payload.model_dump_json().encode()) for payload in payloads)


def _name_of(row: BesideRun) -> str:
    return row.name or names.suffix_of(row.key)


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
