"""Reading a job never changes what it does: its history replays, whatever it was asked meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import Replayer

from activities.planning import Planning
from infra.settings import Settings
from infra.temporal.converter import DATA_CONVERTER
from tests.fleet import Fleet, fresh, view
from tests.sink import Arrival, Sink
from tests.workflows.asking import Job, edit, pause, resume, trigger
from workers.queues import WORKFLOWS, workflow_runner
from workflows.contracts.names import PLAN_ACTIVITY
from workflows.contracts.planning import Plan, PlanInput

POLICIES = ("forbid", "allow", "replace", "queue")
EDITS = 8
PLAN_TAKES = 0.1


async def slow(_: Arrival, before: int) -> web.Response:
    await asyncio.sleep(0.3 * (before % 3))
    return web.Response(status=500 if before % 5 == 0 else 200)


async def read(job: Job) -> None:
    while True:
        with suppress(RPCError, WorkflowQueryFailedError):
            await view(job)
        await asyncio.sleep(0.02)


async def change(job: Job, definition: dict[str, Any]) -> None:
    for number in range(EDITS):
        await asyncio.sleep(0.4)
        await edit(job, {**definition, "description": f"{number}"})
        with suppress(WorkflowUpdateFailedError):  # one is active
            await trigger(job, f"r{number}")
        await pause(job)
        await resume(job)


async def test_a_job_that_was_read_while_it_planned_replays(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query is answered with a workflow task, and ends it: nothing else of the task may wait behind it."""
    plan = Planning.plan

    @activity.defn(name=PLAN_ACTIVITY)
    async def slowly(self, asked: PlanInput) -> Plan:  # type: ignore[no-untyped-def]  # as Temporal wants it
        await asyncio.sleep(PLAN_TAKES)
        return await plan(self, asked)

    monkeypatch.setattr(Planning, "plan", slowly)
    fleet = await Fleet(temporal_client, temporal_settings).start()
    sink.answers["/read"] = slow
    definitions: list[dict[str, Any]] = [
        {
            "schedule": {"every": 1},
            "target": {"url": sink.url("/read")},
            "concurrency": {"policy": policy, "limit": 2, "group": group},
        }
        for policy in POLICIES
        for group in (None, "read")
    ]
    try:
        jobs = [await fleet.create(fresh("read"), definition) for definition in definitions]
        reading = [asyncio.create_task(read(job)) for job in jobs]
        await asyncio.gather(*(change(job, each) for job, each in zip(jobs, definitions, strict=True)))
        for task in reading:
            task.cancel()
        histories = [await job.fetch_history() for job in jobs]
    finally:
        await fleet.stop()
    replayer = Replayer(
        workflows=list(WORKFLOWS), data_converter=DATA_CONVERTER, workflow_runner=workflow_runner()
    )
    for history in histories:
        await replayer.replay_workflow(history)
