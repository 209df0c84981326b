"""A worker that stands still past its lease and goes on neither fires nor reports over a newer delivery."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.processes.conftest import LEASE, Installation
from tests.sink import Arrival, Sink


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


async def test_a_run_held_by_a_frozen_worker_is_fired_once_by_another(
    installation: Installation, sink: Sink
) -> None:
    """It thaws with its hold long past: the fence tells it that the run is no longer its own."""
    await installation.create(
        id="ice", schedule={"every": 4}, target={"type": "http", "url": sink.url("/ice")}
    )
    await sink.wait_for("/ice", 1)
    await asyncio.sleep(1)  # into the hold of the next one
    async with frozen(installation) as worker:
        before = len(sink.at("/ice"))
        await sink.wait_for("/ice", before + 1, within=90)
        os.kill(worker, signal.SIGCONT)
        await sink.wait_for("/ice", before + 4, within=40)
    arrivals = sink.at("/ice")
    repeated = [key for key, count in Counter(one.execution_id for one in arrivals).items() if count > 1]
    assert repeated == []
    rows = await installation.until_executions(
        "ice", lambda rows: len([row for row in rows if row["outcome"] == "succeeded"]) >= len(arrivals) - 1
    )
    assert {row["outcome"] for row in rows} <= {
        "succeeded",
        "skipped",
        "missed",
        "running",
        "scheduled",
        "held",
    }


async def test_what_a_thawed_worker_has_to_say_does_not_stand_over_the_newer_delivery(
    installation: Installation, sink: Sink
) -> None:
    thawed, answered = asyncio.Event(), asyncio.Event()

    async def fail_late(_: Arrival, before: int) -> web.Response:
        if before > 0:
            return web.Response(text="ok")
        await thawed.wait()
        answered.set()
        return web.Response(status=400, text="too late")

    sink.answers["/zombie"] = fail_late
    await installation.create(
        id="zombie", schedule={"in": 1}, target={"type": "http", "url": sink.url("/zombie")}
    )
    [first] = await sink.wait_for("/zombie", 1)
    stopped = time.time()
    async with frozen(installation) as worker:
        _, again = await sink.wait_for("/zombie", 2, within=90)
        assert (again.execution_id, again.delivery) == (first.execution_id, 2)
        assert again.at - stopped < 90
        await installation.until_executions("zombie", lambda rows: rows[0]["outcome"] == "succeeded")
        thawed.set()
        os.kill(worker, signal.SIGCONT)
        await asyncio.wait_for(answered.wait(), 10)
        # a run of the thawed worker's own, behind which its late word has been written
        await installation.create(
            id="barrier", schedule={"every": 1}, target={"type": "http", "url": sink.url("/barrier")}
        )
        await sink.wait_for("/barrier", 3)
    [row] = await installation.executions("zombie")
    assert row["outcome"] == "succeeded"
    assert [(one["attempt"], one["delivery"], one["outcome"]) for one in row["attempts"]] == [
        (1, 2, "succeeded")
    ]
    assert len(sink.at("/zombie")) == 2
    job = (await installation.api.get("/jobs/zombie")).json()
    assert (job["stats"]["succeeded"], job["stats"]["dead_lettered"]) == (1, 0)
