"""A whole installation, ``carillon up``, with a client of its API and a sink for its deliveries."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from api.cli.token import issue_token
from infra.installation import settings_for
from infra.temporal.client import connect
from tests.api.cli.installations import CARILLON, Up, bare_environment
from tests.sink import Sink

TENANT = "acme"
LEASE = 5
Create = Callable[..., Awaitable[dict[str, Any]]]


class Installation:
    """``start`` and ``stop`` as often as one likes; its data directory stays."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.up: Up | None = None
        self.api = httpx.AsyncClient()

    async def start(self, *options: str) -> None:
        self.up = Up(self.data_dir, *options)
        await asyncio.to_thread(self.up.ready)
        settings = settings_for(self.data_dir)
        token = issue_token(
            settings,
            tenant=TENANT,
            scope="jobs:read jobs:write",
            subject="tester",
            ttl=timedelta(hours=1),
        )
        await self.api.aclose()
        self.api = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{settings.api_port}/v1",
            headers={"authorization": f"Bearer {token}"},
            timeout=20,
        )

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.up is not None and self.up.process.poll() is None:
            await asyncio.to_thread(self.up.stop, number)

    async def temporal(self) -> Client:
        return await connect(settings_for(self.data_dir))

    def worker(self) -> int:
        assert self.up is not None
        return self.up.child("carillon worker")

    def kill_worker(self) -> None:
        os.kill(self.worker(), signal.SIGKILL)

    async def start_worker(self) -> asyncio.subprocess.Process:
        """A worker process that ``carillon up`` does not know of."""
        return await asyncio.create_subprocess_exec(
            sys.executable, CARILLON, "worker", "--data-dir", self.data_dir, env=bare_environment(),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async def create(self, **job: Any) -> dict[str, Any]:
        answer = await self.api.post("/jobs", json={"heartbeat_timeout": LEASE, **job})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def executions(self, job: str, **query: Any) -> list[dict[str, Any]]:
        answer = await self.api.get(f"/jobs/{job}/executions", params={"limit": 200, **query})
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    async def until_executions(
        self, job: str, enough: Callable[[list[dict[str, Any]]], bool], within: float = 60
    ) -> list[dict[str, Any]]:
        """The executions of a job as soon as they are ``enough``: rows may follow a run by a moment."""
        async with asyncio.timeout(within):
            while not enough(found := await self.executions(job)):
                await asyncio.sleep(0.1)
        return found


async def until_ready(url: str, status: int = 200) -> None:
    """As soon as the API there says that it is, or with ``status`` 503 that it is not."""
    async with httpx.AsyncClient() as client, asyncio.timeout(60):
        while True:
            try:
                if (await client.get(f"{url}/readyz")).status_code == status:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


@asynccontextmanager
async def installed(data_dir: Path, *options: str) -> AsyncIterator[Installation]:
    installation = Installation(data_dir)
    try:
        await installation.start(*options)
        yield installation
    finally:
        await installation.stop()
        await installation.api.aclose()


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = await Sink().start()
    yield sink
    await sink.stop()


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(tmp_path / "data") as installation:
        yield installation
