"""How far this machine's clock is from the server's."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, PollWorkflowTaskQueueRequest
from temporalio.client import Client

_QUEUE = "carillon-doctor"
_WAIT = 0.3


@dataclass(frozen=True)
class Offset:
    """``ahead``: this clock less the server's, wrong by at most ``uncertainty``."""

    ahead: timedelta
    uncertainty: timedelta


async def clock_offset(client: Client, identity: str) -> Offset | None:
    """Measures by a poll of a queue that nobody uses: the server notes when it came. None if it does not say.

    No call answers with the server's clock, and this one leaves nothing behind.
    """
    queue = TaskQueue(name=_QUEUE)
    describe = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=queue, task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    )
    await client.workflow_service.describe_task_queue(describe)
    asked = datetime.now(UTC)
    await client.workflow_service.describe_task_queue(describe)
    round_trip = datetime.now(UTC) - asked
    polled = datetime.now(UTC)
    poll = asyncio.create_task(
        client.workflow_service.poll_workflow_task_queue(
            PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=queue, identity=identity),
            timeout=timedelta(seconds=5),
        )
    )
    try:
        await asyncio.sleep(_WAIT)
        answer = await client.workflow_service.describe_task_queue(describe)
    finally:
        poll.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await poll
    for poller in answer.pollers:
        if poller.identity == identity:
            arrived = poller.last_access_time.ToDatetime(UTC)
            return Offset(ahead=polled - arrived + round_trip / 2, uncertainty=round_trip)
    return None
