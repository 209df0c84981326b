"""Updates that the server dropped with the answer of a workflow task are sent again, a few times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from infra.temporal import resent_updates
from infra.temporal.resent_updates import AGAIN_AFTER_S, ResentUpdates


@workflow.defn
class Counted:
    def __init__(self) -> None:
        self._count = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._count < 0)

    @workflow.update
    def count(self) -> int:
        self._count += 1
        return self._count


class Dropping(Interceptor):
    """Nearer to the server: says of the first ``times`` updates what it would."""

    def __init__(self, times: int, status: RPCStatusCode) -> None:
        self.times, self.status = times, status
        self.ids: list[str | None] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        dropping = self

        class Outbound(OutboundInterceptor):
            async def start_workflow_update(
                self, input: StartWorkflowUpdateInput
            ) -> WorkflowUpdateHandle[Any]:
                dropping.ids.append(input.update_id)
                if len(dropping.ids) <= dropping.times:
                    raise RPCError("the workflow's task failed", dropping.status, b"")
                return await self.next.start_workflow_update(input)

        return Outbound(next)


@pytest.fixture
async def queue(temporal_client: Client) -> AsyncIterator[str]:
    name = f"resent-{uuid4()}"
    async with Worker(temporal_client, task_queue=name, workflows=[Counted]):
        yield name


async def counted(client: Client, queue: str, dropping: Dropping) -> WorkflowHandle[Any, Any]:
    handle = await client.start_workflow(Counted.run, id=queue, task_queue=queue)
    config = {**client.config(), "interceptors": [ResentUpdates(), dropping]}
    return Client(**config).get_workflow_handle(handle.id)


async def test_one_that_was_dropped_is_sent_again_under_its_id(temporal_client: Client, queue: str) -> None:
    dropping = Dropping(2, RPCStatusCode.FAILED_PRECONDITION)
    handle = await counted(temporal_client, queue, dropping)
    assert await handle.execute_update(Counted.count, id="once") == 1
    assert dropping.ids == ["once"] * 3


@pytest.mark.parametrize(
    ("status", "sent"),
    [(RPCStatusCode.FAILED_PRECONDITION, len(AGAIN_AFTER_S) + 1), (RPCStatusCode.NOT_FOUND, 1)],
)
async def test_what_will_not_mend_is_raised(
    temporal_client: Client, queue: str, monkeypatch: pytest.MonkeyPatch, status: RPCStatusCode, sent: int
) -> None:
    monkeypatch.setattr(resent_updates, "AGAIN_AFTER_S", (0.01,) * len(AGAIN_AFTER_S))
    dropping = Dropping(10, status)
    handle = await counted(temporal_client, queue, dropping)
    with pytest.raises(RPCError) as raised:
        await handle.execute_update(Counted.count, id="never")
    assert (raised.value.status, len(dropping.ids)) == (status, sent)


def test_the_clients_of_every_process_send_again(temporal_client: Client) -> None:
    assert [type(one) for one in temporal_client.config()["interceptors"]] == [ResentUpdates]
