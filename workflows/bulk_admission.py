"""Admission of a tenant's bulks: at most three under way, exactly, without asking visibility.

Open only while a bulk is.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import failures, names
    from workflows.contracts.bulk import BULKS_MAX, BulkOrder, BulkState
    from workflows.contracts.planning import TenantHints
    from workflows.contracts.search import attributes


@workflow.defn(name=names.BULKS_WORKFLOW)
class BulksWorkflow:
    def __init__(self) -> None:
        self._open: set[str] = set()
        self._asked = False
        self._watches: set[asyncio.Task[None]] = set()

    @workflow.run
    async def run(self) -> None:
        """Never continues as new: the server would tell the next run nothing of its children."""
        await workflow.wait_condition(
            lambda: self._asked and not self._open and workflow.all_handlers_finished()
        )

    @workflow.update(name=names.UPDATE_ADMIT)
    async def admit(self, order: BulkOrder) -> None:
        """Start it; one that was started before is fine, be it under way or at its end."""
        self._asked = True
        if order.id in self._open:
            return
        self._open.add(order.id)
        try:
            child = await workflow.start_child_workflow(
                names.BULK_WORKFLOW,
                BulkState(order=order),
                id=names.bulk_workflow_id(order.tenant, order.id),
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                priority=Priority(
                    priority_key=3, fairness_key=order.tenant, fairness_weight=TenantHints().weight
                ),
                search_attributes=attributes(order.tenant),
                static_summary=f"{order.action} many of {order.tenant}",
            )
        except WorkflowAlreadyStartedError:
            self._open.discard(order.id)
            return
        watch = asyncio.create_task(self._watch(order.id, child))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    @admit.validator
    def _check_admit(self, order: BulkOrder) -> None:
        if order.id in self._open:
            return
        if len(self._open) >= BULKS_MAX:
            raise _refusal(failures.TOO_MANY_BULKS, f"{BULKS_MAX} bulks of the tenant are under way")
        if workflow.info().is_continue_as_new_suggested():
            raise _refusal(failures.JOB_BUSY, "the bulks under way have to end first")

    async def _watch(self, bulk: str, child: ChildWorkflowHandle[object, object]) -> None:
        try:
            await child
        except FailureError:
            workflow.logger.info("bulk %s was ended by somebody", bulk)
        finally:
            self._open.discard(bulk)


def _refusal(kind: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=kind, non_retryable=True)
