"""A worker that stands still past its lease and goes on neither fires nor reports over a newer delivery."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.processes.conftest import TENANT, Installation
from tests.sink import Arrival, Sink
from workflows.contracts.names import job_workflow_id

TAKEN_OVER = 90
"""Polls that the frozen process left open take tasks as well, each of which costs a lease."""


@asynccontextmanager
async def frozen(installation: Installation) -> AsyncIterator[int]:
    """The installation's own worker stands still; a second one takes over. Gives the frozen one's pid."""
    worker = installation.worker()
    os.kill(worker, signal.SIGSTOP)
    second = await installation.start_worker()
    try:
        yield worker
    finally:
        os.kill(worker, signal.SIGCONT)
        second.terminate()
        assert await second.wait() == 0


async def until_beaten(installation: Installation, job: str) -> None:
    """Until the server knows that the run of this job has fired."""
    handle = (await installation.temporal()).get_workflow_handle(job_workflow_id(TENANT, job))
    async with asyncio.timeout(10):
        while True:
            pending = (await handle.describe()).raw_description.pending_activities
            if any(b'"fired"' in one.data for each in pending for one in each.heartbeat_details.payloads):
                return
            await asyncio.sleep(0.05)


async def test_a_worker_frozen_past_its_lease_does_no_harm_when_it_thaws(
    installation: Installation, sink: Sink
) -> None:
    """One run is held, another in flight when it freezes; both are another worker's when it thaws."""
    thawed, answered = asyncio.Event(), asyncio.Event()

    async def fail_late(_: Arrival, before: int) -> web.Response:
        if before > 0:
            return web.Response(text="ok")
        await thawed.wait()
        answered.set()
        return web.Response(status=400, text="too late")

    sink.answers["/flying"] = fail_late
    await installation.create(
        id="flying", schedule={"in": 0}, target={"type": "http", "url": sink.url("/flying")}
    )
    await installation.create(
        id="held", schedule={"every": 4}, target={"type": "http", "url": sink.url("/held")}
    )
    [first] = await sink.wait_for("/flying", 1)
    await until_beaten(installation, "flying")
    # the next one is held as soon as this one has been reported
    await installation.until_executions(
        "held", lambda rows: any(row["outcome"] == "succeeded" for row in rows)
    )
    async with frozen(installation) as worker:
        before = len(sink.at("/held"))
        _, again = await sink.wait_for("/flying", 2, within=TAKEN_OVER)
        assert (again.execution_id, first.delivery, again.delivery) == (first.execution_id, 1, 2)
        await sink.wait_for("/held", before + 1, within=TAKEN_OVER)
        await installation.until_executions("flying", lambda rows: rows[0]["outcome"] == "succeeded")
        thawed.set()
        os.kill(worker, signal.SIGCONT)
        await asyncio.wait_for(answered.wait(), 10)
        # behind these runs its late word has been written, and its hold has met the fence
        await sink.wait_for("/held", before + 3, within=TAKEN_OVER)
    assert len(sink.at("/flying")) == 2
    [row] = await installation.executions("flying")
    assert row["outcome"] == "succeeded"
    assert [(one["delivery"], one["outcome"]) for one in row["attempts"]] == [(2, "succeeded")]
    stats = (await installation.api.get("/jobs/flying")).json()["stats"]
    assert (stats["runs"], stats["succeeded"]) == (1, 1)
    sent = Counter(one.execution_id for one in sink.at("/held"))
    repeated = [one for one in sink.at("/held") if sent[one.execution_id] > 1]
    assert [(one.execution_id, one.delivery, one.at) for one in repeated] == []
