"""Whatever meets a workflow that its worker has to load anew: what comes of it can be replayed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from infra.settings import Settings
from infra.temporal.converter import DATA_CONVERTER
from tests.fleet import Fleet, actor
from tests.workers.patient import ASIDE, Asleep, Patient, Renewed, Resting, Woken, aside
from workers.queues import WORKFLOWS as JOBS_WORKFLOWS
from workers.queues import workflow_runner
from workers.replayable import ReplayableRunner
from workflows.contracts import names
from workflows.contracts.job import JobChanged, PauseRequest, ResumeRequest

WORKFLOWS = (Woken, Asleep, Resting, Renewed)
JOBS = 16
"""At once, so that a query is the first thing that a new worker gets of some of them."""


@asynccontextmanager
async def worker(client: Client, queue: str) -> AsyncIterator[ReplayableRunner]:
    runner = ReplayableRunner(SandboxedWorkflowRunner())
    serving = Worker(
        client,
        task_queue=queue,
        workflows=WORKFLOWS,
        workflow_runner=runner,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
    runner.serve(serving)
    async with serving:
        yield runner


@pytest.fixture
def queue() -> str:
    return f"replayable-{uuid.uuid4()}"


async def seen(handle: WorkflowHandle[Any, Any], kind: str, times: int = 1) -> None:
    """Until the history has as many events of a kind."""
    async with asyncio.timeout(20):
        while True:
            events = (await handle.fetch_history()).events
            if sum(event.HasField(f"{kind}_event_attributes") for event in events) >= times:
                return
            await asyncio.sleep(0.05)


async def ask(handle: WorkflowHandle[Any, Any], within: float = 2) -> int | None:
    """As the API asks: not for long."""
    try:
        return await handle.query(Patient.view, rpc_timeout=timedelta(seconds=within))
    except RPCError:
        return None


async def replays(handle: WorkflowHandle[Any, Any]) -> None:
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=DATA_CONVERTER,
        workflow_runner=ReplayableRunner(SandboxedWorkflowRunner()),
    )
    await replayer.replay_workflow(await handle.fetch_history())


async def started(client: Client, workflow: Any, *args: Any, queue: str) -> list[WorkflowHandle[Any, Any]]:
    """Workflows whose worker has ended after their first task."""
    async with worker(client, queue):
        handles = [
            await client.start_workflow(workflow, args=args, id=f"{queue}-{n}", task_queue=queue)
            for n in range(JOBS)
        ]
        await asyncio.gather(*(seen(handle, "workflow_task_completed") for handle in handles))
    return handles


@pytest.mark.parametrize("queries", [1, 3])
async def test_a_query_before_a_workflow_task_and_an_update_in_it(
    temporal_client: Client, queue: str, queries: int
) -> None:
    """The query is answered from what no task has seen yet; what follows is decided in the task. Of several
    queries at once the SDK may drop some, and the task with them, until that times out after ten seconds."""
    handles = await started(temporal_client, Woken.run, queue=queue)
    asked = [asyncio.create_task(ask(handle, within=8)) for handle in handles for _ in range(queries)]
    await asyncio.sleep(0.3)
    await asyncio.gather(*(handle.signal(Patient.hear) for handle in handles))
    updates = [asyncio.create_task(handle.execute_update(Patient.change)) for handle in handles]
    await asyncio.sleep(0.1)
    async with worker(temporal_client, queue) as runner:
        answers = await asyncio.gather(*asked)
        assert set(answers) <= ({1} if queries == 1 else {1, None})
        await asyncio.gather(*updates)
        for handle in handles:
            await handle.signal(Patient.hear)
            await handle.signal(Patient.hear)
        await asyncio.gather(*(handle.result() for handle in handles))
    assert runner.evicted, "no query was ahead of its workflow task: nothing has been shown"
    for handle in handles:
        await replays(handle)


async def test_a_query_before_the_workflow_task_of_a_timer(temporal_client: Client, queue: str) -> None:
    """What a query brings in has no time yet: the workflow would take its last task's for it."""
    until = datetime.now(UTC) + timedelta(seconds=10)
    handles = await started(temporal_client, Asleep.run, until, queue=queue)
    await asyncio.sleep((until - datetime.now(UTC)).total_seconds() - 3)
    asked = [asyncio.create_task(ask(handle, within=20)) for handle in handles]
    await asyncio.sleep((until - datetime.now(UTC)).total_seconds() + 0.5)
    async with worker(temporal_client, queue) as runner:
        await asyncio.gather(*asked)
        async with asyncio.timeout(30):
            assert await asyncio.gather(*(handle.result() for handle in handles)) == [1] * JOBS
    assert runner.evicted, "no query was ahead of its workflow task: nothing has been shown"
    for handle in handles:
        await replays(handle)


async def test_a_query_of_a_workflow_that_is_up_to_date_costs_nothing(
    temporal_client: Client, queue: str
) -> None:
    async with worker(temporal_client, queue) as first:
        handle = await temporal_client.start_workflow(Woken.run, id=queue, task_queue=queue)
        await handle.signal(Patient.hear)
        for _ in range(20):
            await handle.query(Patient.view)
            await handle.execute_update(Patient.change)
    async with worker(temporal_client, queue) as second:
        for _ in range(5):
            await handle.query(Patient.view)
            await handle.execute_update(Patient.change)
        await handle.terminate()
    assert first.evicted + second.evicted == 0


async def test_an_update_behind_two_workflow_tasks_without_a_command(
    temporal_client: Client, queue: str
) -> None:
    """The second of them would be seen together with the update, and behind it."""
    async with Worker(temporal_client, task_queue=ASIDE, activities=[aside]):
        async with worker(temporal_client, queue):
            handle = await temporal_client.start_workflow(Resting.run, id=queue, task_queue=queue)
            await seen(handle, "workflow_task_completed")
            await handle.signal(Patient.hear)
            await seen(handle, "activity_task_scheduled")
            await handle.signal(Patient.hear)
            await seen(handle, "activity_task_completed")
            await seen(handle, "workflow_task_completed", 4)
        async with worker(temporal_client, queue):
            await handle.execute_update(Resting.ask)
        async with worker(temporal_client, queue):
            await handle.execute_update(Resting.ask)
            await replays(handle)
            await handle.terminate()


async def test_an_update_together_with_what_came_while_no_worker_was_there(
    temporal_client: Client, queue: str
) -> None:
    """Here both do belong to one workflow task."""
    async with Worker(temporal_client, task_queue=ASIDE, activities=[aside]):
        async with worker(temporal_client, queue):
            handle = await temporal_client.start_workflow(Resting.run, id=queue, task_queue=queue)
            await handle.signal(Patient.hear)
            await seen(handle, "activity_task_scheduled")
        await seen(handle, "activity_task_completed")
        asked = [asyncio.create_task(handle.execute_update(Resting.ask)) for _ in range(2)]
        await asyncio.sleep(0.3)
        async with worker(temporal_client, queue):
            await asyncio.gather(*asked)
            for _ in range(3):
                await handle.execute_update(Resting.ask)
        await replays(handle)
        async with worker(temporal_client, queue):
            await handle.execute_update(Resting.ask)
            await replays(handle)
            await handle.terminate()


async def test_an_update_together_with_what_makes_a_workflow_continue_as_new(
    temporal_client: Client, queue: str
) -> None:
    """The next run answers it."""
    async with Worker(temporal_client, task_queue=ASIDE, activities=[aside]):
        async with worker(temporal_client, queue):
            handle = await temporal_client.start_workflow(Renewed.run, 0, id=queue, task_queue=queue)
            await handle.signal(Patient.hear)
            await seen(handle, "activity_task_scheduled")
        await seen(handle, "activity_task_completed")
        asked = asyncio.create_task(handle.execute_update(Renewed.number))
        await asyncio.sleep(0.3)
        async with worker(temporal_client, queue):
            assert await asked == 1
        first = temporal_client.get_workflow_handle(queue, run_id=handle.first_execution_run_id)
        await replays(first)
        await replays(handle)
        await handle.terminate()


async def test_a_paused_job_is_resumed_first_thing_by_a_new_worker(
    temporal_client: Client, temporal_settings: Settings, queue: str
) -> None:
    """What told its index of the pause came back in a workflow task without a command, and a signal too."""
    fleet = await Fleet(temporal_client, temporal_settings).start()
    try:
        job = await fleet.create(
            queue, {"schedule": {"every": 3600}, "target": {"url": "http://127.0.0.1:9/"}}
        )
        await asyncio.sleep(1)
        store = fleet.recorder.store
        fleet.recorder.store = partial(late, store)  # type: ignore[method-assign]
        request = PauseRequest(actor=actor(), reason="to see")
        await job.execute_update(names.UPDATE_PAUSE, request, result_type=JobChanged)
        await asyncio.sleep(0.5)
        await job.signal(names.SIGNAL_LETTER_CLOSED, "nobody's")
        await asyncio.sleep(1.5)
        await fleet.stop_workers()
        fleet = await fleet.with_settings().start()
        resume = ResumeRequest(actor=actor())
        await job.execute_update(names.UPDATE_RESUME, resume, result_type=JobChanged)
        await asyncio.sleep(1)
        replayer = Replayer(
            workflows=JOBS_WORKFLOWS, data_converter=DATA_CONVERTER, workflow_runner=workflow_runner()
        )
        await replayer.replay_workflow(await job.fetch_history())
    finally:
        await fleet.stop()


async def late(store: Any, *args: Any) -> bool:
    await asyncio.sleep(1)
    return bool(await store(*args))
