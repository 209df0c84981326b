"""Dead letters: read from their workflows and the index, settled by updates to their workflows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import Field
from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from api.connection import Connection
from api.jobs.answers import Answer, AttemptAnswer, attempt_answer
from api.problem_table import LATER, problem_for
from api.problems import Kind, ProblemError
from infra.database.dead_letters import DeadLetters
from infra.database.errors import DatabaseError
from infra.database.executions import History
from infra.temporal.errors import SetupError
from workflows.contracts import failures
from workflows.contracts.base import Contract, Instant
from workflows.contracts.dead_letter import (
    ALIVE_LETTERS,
    DeadLetterState,
    DiscardLetter,
    LetterRedriven,
    LetterRow,
    LetterStatus,
    RedriveLetter,
)
from workflows.contracts.names import (
    QUERY_VIEW,
    UPDATE_DISCARD,
    UPDATE_REDRIVE,
    dead_letter_workflow_id,
    opaque_id,
    run_name,
    run_workflow_id,
)
from workflows.contracts.records import AttemptRow, Trigger
from workflows.domain import dead_letter

ANSWER_WITHIN_S = 8.0
VIEW_WITHIN = timedelta(seconds=2)
HISTORY_WITHIN_S = 1.0

T = TypeVar("T")
log = logging.getLogger(__name__)


class LetterAnswer(Answer):
    """An execution that ended without success, until somebody settles it."""

    id: str
    key: str
    job: str
    scheduled_time: Instant
    trigger: Trigger
    status: LetterStatus = Field(description="`redriving` while its redrive is under way.")
    reason: str | None = Field(description="Why no further attempt followed.")
    last_attempt: int = Field(description="Number of the last attempt; a redrive goes on behind it.")
    status_code: int | None = Field(description="Of the last attempt.")
    error: str | None = Field(description="Of the last attempt.")
    opened_at: Instant
    failed_at: Instant = Field(description="When its execution, or the last redrive, ended.")
    expires_at: Instant
    redrives: int
    revision: int = Field(description="Of the job's definition at its last end.")


class LetterStoryAnswer(LetterAnswer):
    """A dead letter with every attempt."""

    attempts: list[AttemptAnswer]


class LetterPage(Answer):
    items: list[LetterAnswer]
    next_cursor: str | None


def letter_document(row: LetterRow) -> dict[str, Any]:
    """The JSON of a :class:`LetterAnswer`."""
    return _fields(LetterAnswer, row).model_dump(mode="json")


def no_such_letter(status: str | None = None) -> ProblemError:
    how = f" any more: it was {status}" if status else ""
    return ProblemError(
        Kind.NOT_FOUND,
        f"There is no such dead letter{how}; see `GET /v1/dead-letters` for those that are open.",
    )


class NoSuchWorkflow(ProblemError):
    """There is no dead letter of this key that could do anything: it has ended, or never was."""


class Letters:
    def __init__(self, connection: Connection, index: DeadLetters, history: History) -> None:
        self._connection = connection
        self._index = index
        self._history = history

    async def read(self, tenant: str, key: str) -> dict[str, Any]:
        """With every attempt. Raises 404 when it is none, or closed, 503 when nobody who answers knows it."""
        state = await self._state(key)
        now = None if state is None else dead_letter.row(state, state.letter.failed_at)
        row = now if now is not None else await self._index.get(tenant, key)
        if row is None:
            raise no_such_letter()
        if row.status not in ALIVE_LETTERS:
            raise no_such_letter(row.status)
        attempts = await self._attempts(tenant, key)
        if attempts is None:
            attempts = state.letter.attempts if state is not None else []
        told = [attempt_answer(attempt) for attempt in attempts]
        return _fields(LetterStoryAnswer, row, attempts=told).model_dump(mode="json")

    async def redrive(self, key: str, request: RedriveLetter) -> LetterRedriven:
        """Raises what the job refuses it with, 404 when the letter is closed."""
        operation = f"redrive-{request.actor.operation}"
        return await self._send(key, UPDATE_REDRIVE, request, LetterRedriven, operation)

    async def discard(self, tenant: str, key: str, request: DiscardLetter) -> bool:
        """False: it was discarded before. Raises 404 when it is closed otherwise.

        One whose workflow somebody has terminated lives on in the index only, and ends there.
        """
        try:
            operation = f"discard-{request.actor.operation}"
            return await self._send(key, UPDATE_DISCARD, request, bool, operation)
        except NoSuchWorkflow:
            row = await self._row(tenant, key)
            if row is not None and row.status in ALIVE_LETTERS:
                last = {"status": "discarded", "change": row.change + 1, "changed_at": request.actor.at}
                await self._index.write(row.model_copy(update=last))
                return True
            state = await self._state(key) if row is None else None
            status = row.status if row is not None else state.status if state is not None else None
            if status != "discarded":
                raise no_such_letter(status) from None
            return False

    async def redriven_by(self, tenant: str, ref: str, key: str) -> str | None:
        """The id of the workflow that redrives this letter, if its job has been deleted."""
        state = await self._state(key)
        if state is None or state.status != "redriving":
            return None
        return run_workflow_id(tenant, ref, run_name(key, state.letter.next_attempt))

    async def is_open(self, tenant: str, key: str) -> bool:
        """By the index."""
        row = await self._index.get(tenant, key)
        return row is not None and row.status in ALIVE_LETTERS

    async def _state(self, key: str) -> DeadLetterState | None:
        """None: it did not answer in time, or Temporal has forgotten it."""
        try:
            async with asyncio.timeout(VIEW_WITHIN.total_seconds()):
                client = await self._connection.client()
                handle = client.get_workflow_handle(dead_letter_workflow_id(key))
                state: DeadLetterState = await handle.query(
                    QUERY_VIEW, result_type=DeadLetterState, rpc_timeout=VIEW_WITHIN
                )
        except (RPCError, WorkflowQueryFailedError, SetupError, TimeoutError) as error:
            log.info("dead letter %s does not answer: %s", key, error)
            return None
        return state

    async def _attempts(self, tenant: str, key: str) -> Sequence[AttemptRow] | None:
        try:
            async with asyncio.timeout(HISTORY_WITHIN_S):
                stored = await self._history.get_execution(tenant, key)
        except (DatabaseError, TimeoutError) as error:
            log.info("dead letter %s is answered without its history: %s", key, error)
            return None
        return None if stored is None else stored.attempts

    async def _row(self, tenant: str, key: str) -> LetterRow | None:
        try:
            async with asyncio.timeout(HISTORY_WITHIN_S):
                return await self._index.get(tenant, key)
        except (DatabaseError, TimeoutError):
            return None

    async def _send(self, key: str, update: str, request: Contract, answer: type[T], update_id: str) -> T:
        client = await self._connection.client()
        handle = client.get_workflow_handle(dead_letter_workflow_id(key))
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                try:
                    done: T = await handle.execute_update(update, request, id=update_id, result_type=answer)
                except WorkflowUpdateFailedError as error:
                    if not _had_no_answer(error):
                        raise
                    # That update has ended for good, perhaps long ago; the letter knows the operation itself.
                    again = f"{update_id}-{uuid4()}"
                    done = await handle.execute_update(update, request, id=again, result_type=answer)
                return done
        except (WorkflowUpdateFailedError, RPCError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                raise NoSuchWorkflow(Kind.NOT_FOUND, no_such_letter().detail) from None
            problem = problem_for(error)
            if problem is None:
                raise
            raise problem from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise ProblemError(
                Kind.NO_ANSWER,
                "No worker answered in time. What was asked may still be done: read the dead letter before "
                "you ask again.",
                headers=LATER,
            ) from None


def _had_no_answer(error: WorkflowUpdateFailedError) -> bool:
    return isinstance(error.cause, ApplicationError) and error.cause.type == failures.NO_ANSWER


def _fields(model: type[LetterAnswer], row: LetterRow, **more: Any) -> LetterAnswer:
    shared = {name: getattr(row, name) for name in LetterRow.model_fields if name in model.model_fields}
    shared.pop("attempts", None)
    return model(id=opaque_id(row.key), last_attempt=row.attempts, **shared, **more)
