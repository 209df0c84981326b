"""Changing a job: one update to its workflow, answered within ten seconds, be it with a 503.

The API decides nothing: it sends what was asked, and the workflow accepts or rejects it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from api.connection import Connection
from api.jobs.locks import JobLocks
from api.jobs.reading import VIEW_WITHIN, present_view, row_of_view
from api.jobs.refs import Found, Refs
from api.jobs.tombstones import refuse_lost
from api.problem_table import LATER, MAY_BE_APPLIED, problem_for
from api.problems import Kind, ProblemError
from infra.database.errors import DatabaseError
from infra.database.jobs import JobIndex
from workflows.contracts.base import Contract
from workflows.contracts.job import JobChanged, JobView
from workflows.contracts.names import UPDATE_CANCEL, UPDATE_DELETE, job_workflow_id

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 7.4
"""With the search for the job and its Idempotency-Key before it, it stays within ten seconds."""
WAIT_FOR_TURN_S = 4.0
"""What is left afterwards is enough for the slowest answer, a stop of two seconds."""
CHANGE_TAKES_S = 2.4
"""Kept for the change itself by a look at the job before it: the slowest answer, with its way."""
ROW_WITHIN_S = 1.0

Answer = TypeVar("Answer", bound=Contract)


class Changes:
    def __init__(self, connection: Connection, index: JobIndex, refs: Refs, locks: JobLocks) -> None:
        self._connection = connection
        self._index = index
        self._refs = refs
        self._locks = locks

    @asynccontextmanager
    async def turn(self, found: Found) -> AsyncIterator[Turn]:
        """The job to oneself in this process, for a change that begins with a look at it."""
        until = asyncio.get_running_loop().time() + ANSWER_WITHIN_S
        workflow_id = job_workflow_id(found.tenant, found.ref)
        async with self._locks.held(workflow_id, within_s=WAIT_FOR_TURN_S):
            yield Turn(self._connection, self._index, self._refs, found, workflow_id, until)

    async def send(
        self, found: Found, update: str, request: Contract, answer: type[Answer], *, update_id: str
    ) -> Answer:
        """One update in a turn of its own."""
        async with self.turn(found) as turn:
            return await turn.send(update, request, answer, update_id=update_id)

    async def change(
        self, found: Found, update: str, request: Contract, *, update_id: str, now: datetime
    ) -> JobChanged:
        """One change of the job's row in a turn of its own."""
        async with self.turn(found) as turn:
            return await turn.change(update, request, update_id=update_id, now=now)


@dataclass(frozen=True, slots=True)
class Turn:
    """A job that no other call of this process changes meanwhile; ``until`` on the loop's clock."""

    connection: Connection
    index: JobIndex
    refs: Refs
    found: Found
    workflow_id: str
    until: float

    def look_within(self) -> timedelta:
        """How long a look at the job may take before it is changed: a worker that is slow to answer has as
        long as for the change."""
        left = self.until - asyncio.get_running_loop().time() - CHANGE_TAKES_S
        return max(VIEW_WITHIN, timedelta(seconds=left))

    async def stored(self) -> Found:
        """The job with its row, where it was found without one and the database answers."""
        if self.found.stored is not None:
            return self.found
        try:
            async with asyncio.timeout(ROW_WITHIN_S):
                row = await self.index.by_ref(self.found.tenant, self.found.ref)
        except (DatabaseError, TimeoutError) as error:
            log.info("job %s/%s is judged without its row: %s", self.found.tenant, self.found.ref, error)
            return self.found
        return replace(self.found, stored=row)

    async def view(self) -> JobView:
        """The job before it is changed; raises as ``present_view``, and 409 where it is lost."""
        try:
            return await present_view(self.connection, self.found, within=self.look_within())
        except ProblemError:
            await refuse_lost(self.connection, self.found)
            raise

    async def send(self, update: str, request: Contract, answer: type[Answer], *, update_id: str) -> Answer:
        """The workflow's answer; its rejections and every failure on the way go through the one table."""
        handle = (await self.connection.client()).get_workflow_handle(self.workflow_id)
        try:
            async with asyncio.timeout_at(self.until):
                done: Answer = await handle.execute_update(update, request, id=update_id, result_type=answer)
                return done
        except (WorkflowUpdateFailedError, RPCError) as error:
            problem = problem_for(error)
            if problem is None:
                raise
            if problem.kind is Kind.NOT_FOUND:
                await refuse_lost(self.connection, self.found)
            raise problem from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise ProblemError(
                Kind.NO_ANSWER, f"No worker answered in time. {MAY_BE_APPLIED}", headers=LATER
            ) from None

    async def change(self, update: str, request: Contract, *, update_id: str, now: datetime) -> JobChanged:
        """A change that moves the job's row: the row is written before the caller is answered."""
        tenant, ref = self.found.tenant, self.found.ref
        changed = await self.send(update, request, JobChanged, update_id=update_id)
        if changed.view.status == "deleted":
            self.refs.forget(tenant, self.found.job)
        try:
            async with asyncio.timeout(ROW_WITHIN_S):
                await self.index.apply(tenant, row_of_view(tenant, changed.view, now))
        except (DatabaseError, TimeoutError) as error:
            log.warning("row of %s/%s is left to the worker: %s", tenant, ref, error)
        if changed.view.status == "deleted" and update not in (UPDATE_DELETE, UPDATE_CANCEL):
            raise ProblemError(Kind.NOT_FOUND, "The job was deleted while it was being changed.")
        return changed
