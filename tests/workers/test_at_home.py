"""Whose task an activity is of: known by its token, asked for where the token does not say."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from infra.temporal.home import Home, namespace_id
from workers.at_home import AtHome

WITHIN = timedelta(seconds=60)
done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@activity.defn
async def act(name: str) -> None:
    done.append(name)


@workflow.defn
class Acts:
    @workflow.run
    async def run(self, kinds: list[str]) -> None:
        for kind in kinds:
            if kind == "local":
                await workflow.execute_local_activity(act, kind, start_to_close_timeout=WITHIN)
            else:
                await workflow.execute_activity(act, kind, start_to_close_timeout=WITHIN)


class Counted(Home):
    looks = 0

    async def look(self) -> None:
        self.looks += 1
        await super().look()


def working(client: Client, home: Home, queue: str) -> Worker:
    return Worker(
        client, task_queue=queue, workflows=[Acts], activities=[act],
        interceptors=[AtHome(home)], workflow_runner=UnsandboxedWorkflowRunner(),
    )  # fmt: skip


async def begun(client: Client, queue: str, *kinds: str) -> WorkflowHandle[Acts, None]:
    return await client.start_workflow(Acts.run, list(kinds), id=queue, task_queue=queue)


async def test_a_task_of_ours_is_known_without_a_call(temporal_client: Client) -> None:
    home, queue = Counted(temporal_client, await namespace_id(temporal_client)), f"home-{uuid4()}"
    async with working(temporal_client, home, queue):
        await (await begun(temporal_client, queue, "remote", "remote")).result()
    assert (done, home.looks) == (["remote", "remote"], 0)


async def test_the_server_is_asked_for_a_task_whose_token_does_not_say(temporal_client: Client) -> None:
    home, queue = Counted(temporal_client, await namespace_id(temporal_client)), f"home-{uuid4()}"
    async with working(temporal_client, home, queue):
        await (await begun(temporal_client, queue, "local")).result()
    assert (done, home.looks) == (["local"], 1)


@pytest.mark.parametrize("kind", ["local", "remote"])
async def test_anothers_task_is_neither_done_nor_failed(temporal_client: Client, kind: str) -> None:
    home, queue = Counted(temporal_client, str(uuid4())), f"home-{uuid4()}"
    async with working(temporal_client, home, queue):
        handle = await begun(temporal_client, queue, kind)
        async with asyncio.timeout(60):
            while home.looks == 0:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        pending = (await handle.describe()).raw_description.pending_activities
        assert (done, [one.attempt for one in pending]) == ([], [1] if kind == "remote" else [])
        await handle.terminate()
