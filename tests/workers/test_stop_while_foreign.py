"""A worker that is stopped just as another installation's server answers at its address."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast
from uuid import uuid4

import pytest
from temporalio.client import Client

from activities.attempt import Attempts
from infra.temporal import home as homes
from infra.temporal.home import Home, namespace_id
from tests.workers.test_at_home import begun, done, working
from workers.main import _serve


class Turning(Home):
    """Answered by another server once ``turned`` is set."""

    def __init__(self, client: Client, namespace_id: str) -> None:
        super().__init__(client, namespace_id)
        self.turned = asyncio.Event()
        self.noticed = asyncio.Event()

    async def look(self) -> None:
        if self.turned.is_set():
            self.noticed.set()
            self.compare(str(uuid4()))
        await super().look()


class NothingHeld:
    active = 0

    async def stop(self, grace: timedelta) -> None:
        pass


async def test_it_ends_although_the_others_task_waits_in_it(
    temporal_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local activity has no lease: its workflow's task is renewed as long as it waits."""
    monkeypatch.setattr(homes, "LOOK_EVERY", timedelta(seconds=2))  # so that the task comes before the look
    done.clear()
    home, queue, stop = (
        Turning(temporal_client, await namespace_id(temporal_client)),
        f"{uuid4()}",
        asyncio.Event(),
    )
    workers = (working(temporal_client, home, queue), working(temporal_client, home, f"{queue}-due"))
    attempts = cast(Attempts, NothingHeld())
    serving = asyncio.create_task(_serve(workers, attempts, home, timedelta(seconds=1), stop))
    await asyncio.sleep(0.5)  # the first look of the watch is over
    home.turned.set()
    handle = await begun(temporal_client, queue, "local")
    async with asyncio.timeout(60):
        await home.noticed.wait()
    stop.set()
    async with asyncio.timeout(60):
        assert await serving == 1
    assert done == []
    await handle.terminate()
    async with asyncio.timeout(60):  # this process goes on, so the workers are seen to their end
        while not all(worker.is_shutdown for worker in workers):
            await asyncio.sleep(0.1)
