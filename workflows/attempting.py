"""What a job and a run beside it have in common: one attempt after the other, waits, records.

Not a workflow itself. Updates, sources and the end of life are its subclasses' matter.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.attempt import AttemptCall, LostAttempt
    from workflows.contracts import failures, names
    from workflows.contracts.attempt import AttemptReport
    from workflows.contracts.base import rfc3339
    from workflows.contracts.errands import Errand, ErrandsRefused, RefusedErrand
    from workflows.contracts.job import FiredSignal, JobState, RunState, StopIntent
    from workflows.domain import backlog, details, errands, job_records, job_sources, job_state, look_ahead
    from workflows.grouping import Grouping

RUNS_PER_HISTORY = 50
"""Attempts after which a workflow continues as new."""
FLUSH_AGAIN = timedelta(minutes=1)
"""Records wait no longer than this for an attempt to ride on, nor for the next try to write them."""
BATCH_TRIES, ALONE_TRIES = 5, 2
"""Of a batch of errands that fails as a whole: its worker died, or cannot read it; and of one errand."""


class Attempting(Grouping):
    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._call: AttemptCall | None = None
        self._attempts_here = 0
        self._flush_task: asyncio.Task[None] | None = None
        self._errand_task: asyncio.Task[None] | None = None
        self._unsent_since: datetime | None = None
        self._is_ending = False

    def _history_is_long(self) -> bool:
        return self._attempts_here >= RUNS_PER_HISTORY or workflow.info().is_continue_as_new_suggested()

    # -- waiting -----------------------------------------------------------------------------------

    def _wake_at(self, fires_at: datetime) -> datetime | None:
        state = self.state
        limit = state.hints.look_ahead or look_ahead.HOLD_LIMIT
        lead = look_ahead.lead(state.tenant, state.ref, limit)
        return look_ahead.wake_at(fires_at, workflow.now(), lead, limit)

    async def _wait(self, until: datetime | None) -> bool:
        """Sleep until ``until`` (None: for ever) or the next change; True if the time has come.

        Records that no attempt takes along soon are written meanwhile, again and again until they are
        stored: a job may rest for long after the database has come back.
        """
        seen, now = self._changes, workflow.now()
        if not self.state.records:
            self._unsent_since = None
        elif self._unsent_since is None:
            self._unsent_since = now
        if self._unsent_since is None:
            return await self._sleep(until, seen)
        again = now + FLUSH_AGAIN
        if until is None or until > again or now - self._unsent_since >= FLUSH_AGAIN:
            self._unsent_since = now
            self._start_flush()
        if until is not None and until <= again:
            return await self._sleep(until, seen)
        await self._sleep(again, seen)
        return False

    async def _sleep(self, until: datetime | None, seen: int) -> bool:
        timeout = None if until is None else max(until - workflow.now(), timedelta(milliseconds=1))
        try:
            await workflow.wait_condition(
                lambda: self._changes != seen,
                timeout=timeout,
                timeout_summary=None if until is None else f"until {rfc3339(until)}",
            )
        except TimeoutError:
            return True
        return False

    # -- one attempt -------------------------------------------------------------------------------

    async def _attempt(self, run: RunState) -> None:
        if not await self._enter_group(run):
            return
        now = workflow.now()
        wake = self._wake_at(run.fires_at) if run.holdable else run.fires_at
        if run.not_before is not None and run.not_before - now > look_ahead.TIMER_FLOOR:
            wake = run.not_before
        if wake is not None and wake > now:
            await self._until_attempt(run, wake)
            return
        call = self._call = AttemptCall(job_state.attempt_input(self.state, run), now)
        await self._while_calling(call)
        outcome = await call.outcome()
        self._call = None
        self._attempts_here += 1
        if isinstance(outcome, LostAttempt):
            self._lost(run, call, outcome)
        else:
            self._reported(run, call, outcome)
        self._begin_errands()

    async def _until_attempt(self, run: RunState, wake: datetime) -> None:
        """The run waits until ``wake``, for a retry mostly."""
        await self._wait(wake)

    async def _while_calling(self, call: AttemptCall) -> None:
        """A chance to look at what falls due while a run is held or in flight; must end with it."""

    def _reported(self, run: RunState, call: AttemptCall, report: AttemptReport) -> None:
        state, now = self.state, workflow.now()
        job_state.learn(state, run, call.inp, report)
        if report.outcome == "returned":
            job_state.returned(state, run, call.inp, report, call.intent, now)
        elif report.outcome == "late":
            job_state.late(state, run, now)
        elif report.outcome == "cancelled" and not report.fired:
            job_state.stopped_unfired(state, run, call.inp, call.intent, now)
        elif report.outcome == "cancelled" and call.intent.intent == "if_held" and state.as_of_0_4:
            pass  # this holder had not fired, one before it had: it is sent again
        else:
            # Histories of 0.1.0 tried again what failed as it was to stop.
            stopped = call.stop_now_reason if state.runs_errands else None
            job_state.ended(state, run, call.inp, report, now, stopped=stopped)
            if call.inp.definition.completion == "callback":
                self._start_flush()  # nobody who reports the end of a callback run writes its row

    def _lost(self, run: RunState, call: AttemptCall, lost: LostAttempt) -> None:
        """No worker can report its own death: go by what it left, and by its earlier word."""
        state, now = self.state, workflow.now()
        if lost.cancelled and state.runs_errands:  # not in a history that 0.1.0 began
            lease = call.lease if state.as_of_0_4 else call.inp.definition.heartbeat_timeout
            job_state.sent_unseen(run, call.inp, call.intent, call.scheduled_at, now, lease)
        elif call.is_stopped and state.as_of_0_4:
            job_state.sent_in_silence(run, call.inp, lost.details, now, call.lease)
        if lost.fired or call.fired or run.deliveries > 0:
            stopped = call.stop_now_reason
            job_state.lease_lost(state, run, call.inp, left=lost.details, stopped=stopped, now=now)
        elif lost.cancelled or call.is_stopped:
            job_state.stopped_unfired(state, run, call.inp, call.intent, now)
        elif job_state.can_be_planned_again(state, run):
            job_sources.put_back(state, run, now)  # nobody fired it in all that time: decided again, as late
            job_state.drop_plan(state)

    # -- records -----------------------------------------------------------------------------------

    def _start_flush(self) -> asyncio.Task[None]:
        if self._flush_task is None or self._flush_task.done():
            self._flush_task = asyncio.create_task(self._write_records())
        return self._flush_task

    async def _flush(self) -> None:
        """Write what is left over, or wait until the coroutine that does it has ended."""
        await self._start_flush()

    async def _write_records(self) -> None:
        state = self.state
        try:
            while batch := backlog.carried(state.records):
                stored = await workflow.execute_activity(
                    names.FLUSH_ACTIVITY,
                    batch,
                    result_type=bool,
                    start_to_close_timeout=timedelta(seconds=10),
                    retry_policy=RetryPolicy(maximum_attempts=3),
                    summary="write 1 record" if len(batch) == 1 else f"write {len(batch)} records",
                )
                if not stored:
                    return
                job_records.confirm(state, batch)
        except ActivityError:
            workflow.logger.warning("records wait in the job: no worker could write them")

    async def _hand_over(self) -> None:
        """The last records of a workflow outlive it only in the database; its errands, nowhere."""
        seen = self._changes
        await self._flush()
        await self._errands_done()
        if self.state.records:
            await self._sleep(workflow.now() + FLUSH_AGAIN, seen)

    def _is_told(self) -> bool:
        """Nothing of this workflow has to be told to anybody any more."""
        return not self.state.records and not self._owes_errands() and self.state.place is None

    # -- errands -----------------------------------------------------------------------------------

    def _send_errands(self) -> None:
        """Begin to tell other workflows what waits to be told, unless that is under way already."""
        if not self._owes_errands() or self._errands_wait_for_new_history():
            return
        if self._errand_task is None or self._errand_task.done():
            self._errand_task = asyncio.create_task(self._run_errands())

    def _errands_wait_for_new_history(self) -> bool:
        """What is refused for weeks fills histories; only there is a next one whose loop still turns."""
        return (
            not self._is_ending
            and all(errand.put_off is not None for errand in self.state.errands)
            and workflow.info().is_continue_as_new_suggested()
        )

    def _owes_errands(self) -> bool:
        """Histories of 0.1.0 ran none: what is owed in them waits for the end of an attempt."""
        return bool(self.state.errands) and self.state.runs_errands

    def _begin_errands(self) -> None:
        """An attempt has come back. In a history that 0.1.0 began, errands are run from here on.

        An answer to ``patched`` holds for a whole run, so each attempt asks anew until one is yes. It is
        asked nowhere else, since it is wrong in a replay behind a local activity of the same workflow
        task that was longer than that task (seen with SDK 1.35).
        """
        if self.state.errands and not self.state.runs_errands:
            self.state.runs_errands = workflow.patched(f"errands-{self._attempts_here}")

    async def _last_errands_done(self) -> None:
        """Before a workflow ends: nobody would send them after it."""
        self._is_ending = True
        await self._errands_done()

    async def _errands_done(self) -> None:
        """All of them, or all that this history will tell."""
        self._send_errands()
        if self._errand_task is not None:
            await self._errand_task

    async def _run_errands(self) -> None:
        """Until all are done: nobody waits for it, and what a history leaves the next one begins again."""
        state = self.state
        while state.errands:
            if batch := errands.batch(errands.ready(state.errands, workflow.now())):
                await self._run_batch(batch)
            elif self._errands_wait_for_new_history():
                self._changes += 1  # the loop comes round, and continues as new
                return
            else:
                await self._until_next_try()

    async def _run_batch(self, batch: list[Errand]) -> None:
        left = await self._left_of(batch)
        if left is None and len(batch) > 1:  # nobody knows which of them it was
            for errand in batch:
                if errand in errands.ready(self.state.errands, workflow.now()):
                    await self._run_batch([errand])
            return
        if left is None:
            left = ErrandsRefused(refused=[RefusedErrand(place=0, reason="no worker could run it")])
        for errand in errands.settle(self.state, batch, left, workflow.now()):
            workflow.logger.error("given up after many refusals: %s", errands.subject(errand))
        if left.refused:
            workflow.set_current_details(details.describe(self.state))

    async def _left_of(self, batch: list[Errand]) -> ErrandsRefused | None:
        """What could not be done; None: the whole batch failed.

        As it does with a worker of 0.2.0, which fails by the first errand that is refused.
        """
        try:
            await workflow.execute_activity(
                names.ERRANDS_ACTIVITY,
                batch,
                start_to_close_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(
                    maximum_interval=timedelta(minutes=1),
                    maximum_attempts=BATCH_TRIES if len(batch) > 1 else ALONE_TRIES,
                    non_retryable_error_types=[failures.ERRANDS_REFUSED],
                ),
                summary=", ".join(sorted({errand.kind for errand in batch})),
            )
        except ActivityError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == failures.ERRANDS_REFUSED:
                return ErrandsRefused.model_validate(cause.details[0])
            workflow.logger.warning("errands could not be run: %s", cause)
            return None
        return ErrandsRefused()

    async def _until_next_try(self) -> None:
        """Until what was put off is due, or there is something new to tell."""
        state = self.state
        again = errands.next_try(state.errands) or workflow.now()
        timeout = max(again - workflow.now(), timedelta(milliseconds=1))
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: bool(errands.ready(state.errands, workflow.now())) or not state.errands,
                timeout=timeout,
                timeout_summary=f"refused errands until {rfc3339(again)}",
            )

    # -- words and questions of the worker ---------------------------------------------------------

    @workflow.signal(name=names.SIGNAL_FIRED)
    def fired(self, word: FiredSignal) -> None:
        """A worker's word that a run it was asked to stop had fired already."""
        if self._call is not None and self._call.is_for(word):
            self._call.fired = True

    @workflow.query(name=names.QUERY_STOP_INTENT)
    def stop_intent(self, asked: FiredSignal) -> StopIntent:
        if self._call is not None and self._call.is_for(asked):
            return self._call.intent
        return StopIntent()
