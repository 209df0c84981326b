"""Updates that the server dropped, though nothing was wrong with them, are sent again."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowUpdateInput, WorkflowUpdateHandle
from temporalio.service import RPCError, RPCStatusCode

AGAIN_AFTER_S = (0.1, 0.3, 0.9)


class ResentUpdates(Interceptor):
    """For the updates of a client; those that start their workflow are sent as they are.

    When the server refuses the answer to a workflow task (it stood still, and has forgotten one of the
    updates in it), it drops every update of that task with ``FAILED_PRECONDITION``. None of them was
    applied, the task is run again, and an update keeps its id, so it is safe to send it again. A workflow
    whose tasks fail always says the same at once, so that this ends after a second.
    """

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Resending(super().intercept_client(next))


class _Resending(OutboundInterceptor):
    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        for wait in AGAIN_AFTER_S:
            try:
                return await self.next.start_workflow_update(input)
            except RPCError as error:
                if error.status is not RPCStatusCode.FAILED_PRECONDITION:
                    raise
            await asyncio.sleep(wait)
        return await self.next.start_workflow_update(input)
