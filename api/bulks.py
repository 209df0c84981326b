"""One action on many jobs: asked of the tenant's admission, read from the bulk itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowQueryFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from api.connection import Connection
from api.problem_table import LATER, REJECTIONS
from api.problems import Kind, ProblemError
from workflows.contracts.base import Instant
from workflows.contracts.bulk import BulkAction, BulkOrder, BulkOutcome, BulkState
from workflows.contracts.names import (
    BULKS_WORKFLOW,
    MAIN_QUEUE,
    QUERY_PROGRESS,
    UPDATE_ADMIT,
    bulk_workflow_id,
    bulks_workflow_id,
    opaque_id,
)
from workflows.contracts.search import attributes

ANSWER_WITHIN_S = 7.4
READ_WITHIN = timedelta(seconds=2)


class BulkProblemAnswer(BaseModel):
    """A job, or a dead letter, to which the action could not be applied."""

    model_config = ConfigDict(frozen=True)

    job: str
    dead_letter: str | None = Field(description="The `id` of the dead letter, when it was one.")
    type: str = Field(description="The kind of problem, as in a problem document.")
    detail: str


class BulkAnswer(BaseModel):
    """How far an action on many jobs, or dead letters, has come."""

    model_config = ConfigDict(frozen=True)

    id: str
    action: BulkAction
    dry_run: bool
    state: Literal["running", "completed"]
    matched: int | None = Field(description="Those that match; null until they are counted.")
    done: int
    failed: int
    problems: list[BulkProblemAnswer] = Field(description="The first 20 of those that failed.")
    sample: list[str] = Field(description="The first 20 of the ids that match.")
    by: str
    started_at: Instant
    ended_at: Instant | None


class Bulks:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def start(self, order: BulkOrder) -> BulkAnswer:
        """Raises 429 when too many of the tenant's are under way, 503 without an answer in time."""
        client = await self._connection.client()
        start = WithStartWorkflowOperation[object, None](
            BULKS_WORKFLOW,
            id=bulks_workflow_id(order.tenant),
            task_queue=MAIN_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            priority=Priority(priority_key=3, fairness_key=order.tenant),
            search_attributes=attributes(order.tenant),
            static_summary=f"bulks of {order.tenant}",
        )
        started = asyncio.create_task(start.workflow_handle())  # else nobody retrieves its failure
        started.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await client.execute_update_with_start_workflow(
                    UPDATE_ADMIT, order, start_workflow_operation=start, id=f"admit-{order.id}"
                )
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise ProblemError(
                Kind.NO_ANSWER,
                "No worker answered in time. The bulk may still begin: send it again with the same "
                "Idempotency-Key, which begins it once.",
                headers=LATER,
            ) from None
        return bulk_answer(BulkState(order=order))

    async def read(self, tenant: str, bulk: str) -> BulkAnswer:
        """Raises 404 when there is none (any more), 503 when no worker answers."""
        client = await self._connection.client()
        handle = client.get_workflow_handle(bulk_workflow_id(tenant, bulk))
        try:
            async with asyncio.timeout(READ_WITHIN.total_seconds()):
                state: BulkState = await handle.query(
                    QUERY_PROGRESS, result_type=BulkState, rpc_timeout=READ_WITHIN
                )
        except (TimeoutError, WorkflowQueryFailedError):
            raise _unread() from None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise no_such_bulk() from None
            raise _unread() from None
        return bulk_answer(state)


def no_such_bulk() -> ProblemError:
    return ProblemError(Kind.NOT_FOUND, "There is no such bulk; its progress is kept for some days.")


def bulk_answer(state: BulkState) -> BulkAnswer:
    order = state.order
    return BulkAnswer(
        id=order.id,
        action=order.action,
        dry_run=order.dry_run,
        state="running" if state.ended_at is None else "completed",
        matched=state.matched if state.counted else None,
        done=state.done,
        failed=state.failed,
        problems=[_problem(outcome) for outcome in state.problems],
        sample=state.sample,
        by=order.actor.by,
        started_at=order.actor.at,
        ended_at=state.ended_at,
    )


def _problem(outcome: BulkOutcome) -> BulkProblemAnswer:
    """As the same change of that one job would have been answered."""
    problem = REJECTIONS[outcome.kind or ""](outcome.message)
    return BulkProblemAnswer(
        job=outcome.job,
        dead_letter=opaque_id(outcome.key) if outcome.key else None,
        type=problem.kind.uri,
        detail=problem.detail,
    )


def _unread() -> ProblemError:
    return ProblemError(
        Kind.NO_ANSWER, "No worker answered in time; the bulk goes on as soon as one does.", headers=LATER
    )
