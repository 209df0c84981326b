"""Runs beside the loop: begun by workflows of their own, stopped by signals, looked after until they end.

Not a workflow itself. Which runs go there is decided by its subclasses.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from workflows.changing import Changing
    from workflows.contracts import names
    from workflows.contracts.base import Contract
    from workflows.contracts.job import BesideRun, JobState, RunEnded, RunState, StopIntent
    from workflows.domain import active, job_changes, job_sources, letters

START_WITHIN = timedelta(seconds=5)
STARTED_WITHIN = timedelta(seconds=20)
"""All tries to start a run beside the loop; what stops it waits as long."""
START_AGAIN = timedelta(minutes=1)
"""The longest pause between two tries to start a run of which it is not known whether it has been started."""
UNSURE_MAX = 20
UNSURE_MAX_BYTES = 256 * 1024
"""Of such runs, own bodies included: they travel with the job's state."""
ALIVE_WITHIN = timedelta(seconds=10)
ASK_AFTER_BESIDE = timedelta(minutes=1)
"""How long runs beside the loop may hold up another before the job asks whether they are alive."""


class Beside(Changing):
    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._unsure: dict[str, asyncio.Task[None]] = {}
        """By name: runs beside the loop that are started again until it is known that they have been."""
        self._doubted_at: datetime | None = None
        """When the server was asked after runs beside the loop that stay silent."""

    async def _run_beside(self, aside: JobState) -> bool:
        """A workflow of its own does the run of ``aside``; the job hears of its end by a signal.

        False: it was not started, and nothing has changed. One that may have been started counts as active.
        """
        state, run = self.state, aside.run
        assert run is not None
        if len(self._unsure_runs()) >= UNSURE_MAX or not self._can_be_kept(run):
            return False
        job_sources.set_beside(run)
        row = job_sources.beside_row(state, run, workflow.now())
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
            if state.minds_beside and self._can_be_kept(run):
                job_changes.unsure(state, row, run)
                self._start_unsure()
                return True
            lives = len(state.beside)
            state.beside = [known for known in state.beside if known.key != row.key]
            return len(state.beside) == lives  # it has told its end: only the word of its start was lost
        finally:
            self._starting.discard(row.key)
        self._tell_if_it_rests(row)
        return True

    def _tell_if_it_rests(self, row: BesideRun) -> None:
        """The job was paused, edited or deleted while this run was being started."""
        state = self.state
        edited = state.definition if state.revision != row.revision else None
        if state.as_of_0_4 and (state.pause is not None or state.deleted or edited is not None):
            self._tell_standing(row, edited)

    def _unsure_runs(self) -> list[RunState]:
        return [row.unsure for row in self.state.beside if row.unsure is not None]

    def _can_be_kept(self, run: RunState) -> bool:
        unsure = self._unsure_runs()
        return not unsure or bytes_of(*unsure, run) <= UNSURE_MAX_BYTES

    def _start_unsure(self) -> None:
        """What a history leaves, the next one begins again."""
        for row in self.state.beside:
            if row.unsure is not None and row.name not in self._unsure:
                self._unsure[row.name] = asyncio.create_task(self._start_until_sure(row, row.unsure))

    async def _start_until_sure(self, row: BesideRun, run: RunState) -> None:
        """Until there is an answer. The workflow has the same id each time, and is started once."""
        state = self.state
        while not await self._is_started(row, run):
            pass
        known = job_changes.sure(state, row)
        if known is not None and known.stop is not None:  # it came too late, or to a worker of 0.3.0
            await self._stop_beside(known, known.stop)
        elif known is not None:
            self._tell_if_it_rests(known)
        del self._unsure[row.name]
        self._changes += 1

    async def _is_started(self, row: BesideRun, run: RunState) -> bool:
        """False: it is to be stopped meanwhile, which the next start says. Else it would fire first."""
        state = self.state
        stop = job_changes.stop_of_unsure(state, row) if state.stops_unsure else None
        start = workflow.start_activity(
            names.START_RUN_ACTIVITY,
            job_sources.alone_again(state, run, stop),
            start_to_close_timeout=START_WITHIN,
            retry_policy=RetryPolicy(maximum_interval=START_AGAIN),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=Priority(fairness_key=state.tenant, fairness_weight=state.hints.weight),
            summary=f"{'start' if stop is None else 'stop'} {row.name} beside, if it is not yet"[:200],
        )
        if stop is not None or not state.stops_unsure:
            await start
            return True
        await workflow.wait_condition(
            lambda: start.done() or job_changes.stop_of_unsure(state, row) is not None
        )
        if start.done():
            await start
            return True
        start.cancel()  # a try under way is waited for
        try:
            await start
        except ActivityError:
            return False
        return True

    def _send_errands(self) -> None:
        super()._send_errands()
        self._start_unsure()

    def _is_told(self) -> bool:
        return super()._is_told() and not self._unsure_runs()

    async def _errands_done(self) -> None:
        await super()._errands_done()
        if self._unsure:
            await asyncio.gather(*self._unsure.values())

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
        self._tell_beside()
        self._start_flush()
        call, run = self._call, self.state.run
        if call is not None and active.is_planned(call.inp.occurrence.trigger):
            call.stop("if_held", "paused")
        elif call is None and run is not None:
            stop = StopIntent(intent="if_held", reason="paused")
            job_changes.stop_waiting(self.state, run, stop, workflow.now())

    async def _forget_gone(self) -> None:
        """Ask after runs that hold back another; one that was terminated will never tell its end."""
        rows = [row for row in self.state.beside if not row.forced and row.unsure is None]
        await self._ask_after([row for row in rows if row.key not in self._starting])

    async def _wait(self, until: datetime | None) -> bool:
        """Not beyond the instant at which a run beside the loop has been silent for too long."""
        doubt = self._doubt_at()
        if doubt is None or (until is not None and until <= doubt):
            return await super()._wait(until)
        if doubt <= workflow.now() or await super()._wait(doubt):
            await self._dispel_doubt()
        return False

    async def _dispel_doubt(self) -> None:
        """Ask after runs beside the loop that are silent for too long, though they hold up nobody."""
        doubt, now = self._doubt_at(), workflow.now()
        if doubt is None or doubt > now:
            return
        self._doubted_at = now
        rows = [row for row in active.in_doubt(self.state, now) if row.key not in self._starting]
        if rows:
            await self._ask_after(rows)
            if any(row not in self.state.beside for row in rows):
                self._changes += 1
                self._start_flush()  # the loop may be in one attempt for hours

    def _doubt_at(self) -> datetime | None:
        return active.doubt_at(self.state, self._doubted_at) if self.state.minds_beside else None

    async def _ask_after(self, rows: list[BesideRun]) -> None:
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


def bytes_of(*payloads: Contract) -> int:
    return sum(len(payload.model_dump_json().encode()) for payload in payloads)


def _name_of(row: BesideRun) -> str:
    return row.name or names.suffix_of(row.key)
