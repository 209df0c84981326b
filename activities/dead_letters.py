"""What dead letters need outside of their workflows: to be opened and told, sent again, and listed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
)
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.starting import start_alone
from infra.database.dead_letters import DeadLetters
from workflows.contracts import failures, names
from workflows.contracts.dead_letter import (
    OPEN_A_TENANT,
    DeadLetter,
    DeadLetterState,
    LetterEnded,
    LetterRow,
    RedriveOrder,
    RedriveSent,
)
from workflows.contracts.job import JobView, Triggered
from workflows.contracts.search import attributes
from workflows.domain import dead_letter

RPC_WITHIN = timedelta(seconds=4)
EVICT_AT_ONCE = 20

log = logging.getLogger(__name__)


async def open_letter(client: Client, letter: DeadLetter) -> None:
    """Start the workflow of a dead letter, or tell it, if it is open, that its execution failed again.

    Told twice, or after the letter was closed, it is opened no second time.
    """
    if await _start(client, letter, WorkflowIDReusePolicy.REJECT_DUPLICATE):
        return
    closed = await _closed(client, letter)
    if closed is None or dead_letter.is_news(closed.letter, letter):
        await _start(client, letter, WorkflowIDReusePolicy.ALLOW_DUPLICATE)


async def _start(client: Client, letter: DeadLetter, reuse: WorkflowIDReusePolicy) -> bool:
    """False: there was such a letter, which has been closed."""
    key = letter.occurrence.key
    try:
        await client.start_workflow(
            names.DEAD_LETTER_WORKFLOW,
            dead_letter.opened(letter),
            id=names.dead_letter_workflow_id(key),
            task_queue=names.MAIN_QUEUE,
            id_reuse_policy=reuse,
            start_signal=names.SIGNAL_LETTER,
            start_signal_args=[letter],
            priority=Priority(
                priority_key=3, fairness_key=letter.tenant, fairness_weight=letter.hints.weight
            ),
            search_attributes=attributes(letter.tenant, letter.job, letter.ref),
            static_summary=f"dead letter of {key}"[:200],
            rpc_timeout=RPC_WITHIN,
        )
    except WorkflowAlreadyStartedError:
        return False
    return True


async def _closed(client: Client, letter: DeadLetter) -> DeadLetterState | None:
    """How a letter of this key ended last; None: nobody knows (any more)."""
    handle = client.get_workflow_handle(
        names.dead_letter_workflow_id(letter.occurrence.key), result_type=DeadLetterState
    )
    try:
        state: DeadLetterState = await handle.result(rpc_timeout=RPC_WITHIN)
    except (WorkflowFailureError, RPCError) as error:
        if isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    return state


async def tell_letter(client: Client, word: LetterEnded) -> bool:
    """Whether there is such a letter."""
    handle = client.get_workflow_handle(names.dead_letter_workflow_id(word.key))
    try:
        await handle.signal(names.SIGNAL_LETTER_ENDED, word, rpc_timeout=RPC_WITHIN)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


class Letters:
    """``index`` None: the letters are not listed, and no tenant has too many."""

    def __init__(self, client: Client, index: DeadLetters | None, *, open_a_tenant: int = OPEN_A_TENANT):
        self._client = client
        self._index = index
        self._open_a_tenant = open_a_tenant

    @property
    def activities(self) -> tuple[Callable[..., Awaitable[Any]], ...]:
        return (self.send_redrive, self.redrive_alive, self.store)

    @activity.defn(name=names.SEND_REDRIVE_ACTIVITY)
    async def send_redrive(self, order: RedriveOrder) -> RedriveSent:
        """Ask the job; one that has been deleted is done without. Raises what is no answer of the job."""
        letter = order.letter
        job = self._client.get_workflow_handle(names.job_workflow_id(letter.tenant, letter.ref))
        try:
            done: Triggered = await job.execute_update(
                names.UPDATE_REDRIVE,
                dead_letter.redrive_request(order),
                id=order.name,
                result_type=Triggered,
                rpc_timeout=RPC_WITHIN,
            )
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if not isinstance(cause, ApplicationError) or cause.type is None:
                raise  # it met the job's continuing as new
            if cause.type != failures.JOB_DELETED:
                return RedriveSent(kind=cause.type, message=cause.message)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        else:
            return RedriveSent(execution=done.execution)
        await start_alone(self._client, dead_letter.alone(order))
        return RedriveSent(execution=dead_letter.execution(letter, letter.revision))

    @activity.defn(name=names.REDRIVE_ALIVE_ACTIVITY)
    async def redrive_alive(self, letter: DeadLetter) -> bool:
        """Whether the job, or a run beside it, has the letter's execution. Raises when nobody answers."""
        key = letter.occurrence.key
        job = self._client.get_workflow_handle(names.job_workflow_id(letter.tenant, letter.ref))
        try:
            view: JobView = await job.query(names.QUERY_VIEW, result_type=JobView, rpc_timeout=RPC_WITHIN)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        else:
            rows = [*view.waiting, *view.beside, *([view.current] if view.current else [])]
            if any(row.key == key for row in rows):
                return True
        suffix = names.run_name(key, letter.next_attempt)
        run = self._client.get_workflow_handle(names.run_workflow_id(letter.tenant, letter.ref, suffix))
        try:
            found = await run.describe(rpc_timeout=RPC_WITHIN)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return found.status is WorkflowExecutionStatus.RUNNING

    @activity.defn(name=names.STORE_LETTER_ACTIVITY)
    async def store(self, row: LetterRow) -> None:
        """Write the row; of a tenant that has too many open ones the oldest are closed.

        Raises DatabaseUnavailable: the workflow tries again until it is stored.
        """
        if self._index is None:
            return
        await self._index.write(row)
        if row.status != "open":
            return
        for old in await self._index.beyond(row.tenant, self._open_a_tenant, limit=EVICT_AT_ONCE):
            log.warning(
                "%s has more than %d dead letters: %s lives on in the history only",
                row.tenant, self._open_a_tenant, old.key,
            )  # fmt: skip
            word = LetterEnded(key=old.key, outcome="evicted", at=row.changed_at)
            if not await tell_letter(self._client, word):  # its workflow was ended by somebody
                gone = {"status": "evicted", "change": old.change + 1, "changed_at": row.changed_at}
                await self._index.write(old.model_copy(update=gone))
