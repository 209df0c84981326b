"""The dead letter workflow: open until it is redriven with success, discarded, expired or evicted."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import failures, names
    from workflows.contracts.actor import Actor
    from workflows.contracts.base import rfc3339
    from workflows.contracts.dead_letter import (
        DeadLetter,
        DeadLetterState,
        DiscardLetter,
        LetterEnded,
        LetterRedriven,
        RedriveLetter,
        RedriveOrder,
        RedriveSent,
    )
    from workflows.domain import dead_letter

SEND_WITHIN = timedelta(seconds=6)
"""Less than a client waits for its answer."""
LOOK_FIRST = timedelta(minutes=1)
LOOK_LONGEST = timedelta(hours=1)
"""A redrive of which nothing is heard is asked for after one minute, two, four, up to an hour."""
LOOKS_IN_VAIN = 2
"""So often in a row nobody knows of it: then it is lost. Once can be the moment before its last word."""
OPERATIONS_KEPT = 20
UNTIL_IT_IS_STORED = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=30)
)


@workflow.defn(name=names.DEAD_LETTER_WORKFLOW)
class DeadLetterWorkflow:
    @workflow.init
    def __init__(self, state: DeadLetterState) -> None:
        self.state = state
        self._turn = asyncio.Lock()
        """One redrive or discard at a time: the second is answered by what the first has done."""
        self._looks = self._in_vain = 0
        self._write_task: asyncio.Task[None] | None = None

    @workflow.run
    async def run(self, _: DeadLetterState) -> DeadLetterState:
        state = self.state
        while True:
            workflow.set_current_details(dead_letter.describe(state))
            self._write()
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(state)
            if not dead_letter.is_alive(state):
                if await self._is_over():
                    return state
            elif state.status == "redriving":
                await self._look_after_redrive()
            elif await self._wait(state.expires_at) and state.status == "open":
                dead_letter.expire(state)

    async def _wait(self, until: datetime) -> bool:
        """Whether ``until`` has come before the next change."""
        seen = self.state.change
        timeout = max(until - workflow.now(), timedelta(milliseconds=1))
        try:
            await workflow.wait_condition(
                lambda: self.state.change != seen,
                timeout=timeout,
                timeout_summary=f"{self.state.status} until {rfc3339(until)}",
            )
        except TimeoutError:
            return True
        return False

    async def _is_over(self) -> bool:
        """Tell the job, and wait until the index knows; False: it has been opened again meanwhile."""
        state = self.state
        letter = state.letter
        job = workflow.get_external_workflow_handle(names.job_workflow_id(letter.tenant, letter.ref))
        try:
            await job.signal(names.SIGNAL_LETTER_CLOSED, letter.occurrence.key)
        except ApplicationError:
            workflow.logger.info("the job of this dead letter has been deleted meanwhile")
        await workflow.wait_condition(
            lambda: (
                dead_letter.is_alive(state)
                or (state.stored >= state.change and workflow.all_handlers_finished())
            )
        )
        return not dead_letter.is_alive(state)

    # -- the index ---------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._write_task is None or self._write_task.done():
            self._write_task = asyncio.create_task(self._write_rows())

    async def _write_rows(self) -> None:
        """Until the index knows the last change: nobody waits for it but the end."""
        state = self.state
        while state.stored < state.change:
            row = dead_letter.row(state, workflow.now())
            await workflow.execute_activity(
                names.STORE_LETTER_ACTIVITY,
                row,
                start_to_close_timeout=timedelta(seconds=20),
                retry_policy=UNTIL_IT_IS_STORED,
                summary=row.status,
            )
            state.stored = row.change

    # -- a redrive that is under way ---------------------------------------------------------------

    async def _look_after_redrive(self) -> None:
        """Its end is told by the workflow that runs it; one that was lost track of is looked for."""
        seen = self.state.change
        pause = min(LOOK_FIRST * 2 ** min(self._looks, 10), LOOK_LONGEST)
        if not await self._wait(workflow.now() + pause):
            return
        self._looks += 1
        try:
            alive = await workflow.execute_activity(
                names.REDRIVE_ALIVE_ACTIVITY,
                self.state.letter,
                result_type=bool,
                start_to_close_timeout=timedelta(seconds=15),
                retry_policy=RetryPolicy(maximum_attempts=3),
            )
        except ActivityError:  # nobody knows at present
            return
        if self.state.change != seen:
            return
        self._in_vain = 0 if alive else self._in_vain + 1
        if self._in_vain >= LOOKS_IN_VAIN:
            workflow.logger.warning("the redrive is lost; the dead letter is open again")
            dead_letter.lost(self.state)

    # -- what people ask ---------------------------------------------------------------------------

    @workflow.update(name=names.UPDATE_REDRIVE)
    async def redrive(self, request: RedriveLetter) -> LetterRedriven:
        """Run it again. While a redrive is under way another one is answered with it and begins nothing."""
        state = self.state
        async with self._turn:
            repeated = self._is_repeated(request.actor)
            if not repeated:
                self._refuse_closed()
            if repeated or state.status == "redriving":
                row = dead_letter.execution(state.letter, state.letter.revision)
                return LetterRedriven(execution=row, revision=row.revision, repeated=True)
            seen = state.change
            sent = await self._send(dead_letter.redrive_order(state, request.actor, force=request.force))
            if sent.execution is None:
                raise _refusal(sent.kind or failures.NO_ANSWER, sent.message)
            self._remember(request.actor)
            if state.change == seen:  # else its end has been told already
                self._looks = self._in_vain = 0
                dead_letter.redriving(state)
        row = dead_letter.execution(state.letter, sent.execution.revision)
        return LetterRedriven(execution=row, revision=row.revision)

    async def _send(self, order: RedriveOrder) -> RedriveSent:
        """The job's word. The order has a name, so that one whose answer got lost can be sent again."""
        try:
            sent: RedriveSent = await workflow.execute_activity(
                names.SEND_REDRIVE_ACTIVITY,
                order,
                result_type=RedriveSent,
                start_to_close_timeout=SEND_WITHIN,
                schedule_to_close_timeout=SEND_WITHIN,
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
            )
        except ActivityError:
            raise _refusal(failures.NO_ANSWER, "the job did not answer") from None
        return sent

    @workflow.update(name=names.UPDATE_DISCARD)
    async def discard(self, request: DiscardLetter) -> bool:
        """False: it was discarded before."""
        async with self._turn:
            if self.state.status == "discarded" or self._is_repeated(request.actor):
                return False
            self._refuse_closed()
            if self.state.status == "redriving":
                raise _refusal(failures.LETTER_REDRIVING, self.state.letter.occurrence.key)
            self._remember(request.actor)
            dead_letter.discard(self.state)
            return True

    def _refuse_closed(self) -> None:
        if not dead_letter.is_alive(self.state):
            raise _refusal(failures.LETTER_CLOSED, self.state.status)

    def _is_repeated(self, actor: Actor) -> bool:
        return bool(actor.operation) and actor.operation in self.state.operations

    def _remember(self, actor: Actor) -> None:
        if actor.operation:
            self.state.operations = [*self.state.operations[1 - OPERATIONS_KEPT :], actor.operation]

    # -- what jobs tell ----------------------------------------------------------------------------

    @workflow.signal(name=names.SIGNAL_LETTER)
    def failed_again(self, letter: DeadLetter) -> None:
        """Its redrive, or a backfill of it, ended without success as well. The first word is the input."""
        dead_letter.failed_again(self.state, letter)

    @workflow.signal(name=names.SIGNAL_LETTER_ENDED)
    def ended(self, word: LetterEnded) -> None:
        dead_letter.ended(self.state, word)

    @workflow.query(name=names.QUERY_VIEW)
    def view(self) -> DeadLetterState:
        return self.state


def _refusal(kind: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=kind, non_retryable=True)
