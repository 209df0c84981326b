"""A second API process beside that of ``carillon up``, and a client that takes either door by chance."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx

from tests.api.cli.installations import CARILLON, bare_environment
from tests.processes.conftest import Installation

AGAIN_AFTER = 0.5
"""Seconds from its death until it is started again."""
READY_WITHIN = 60.0


class SecondApi:
    """``carillon api`` on a port of its own; one that dies is started again."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.port = _free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """None while it is down."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def keep(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, CARILLON, "api", "--data-dir", self._installation.data_dir,
                    "--port", str(self.port), env=bare_environment(),
                    stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                )  # fmt: skip
                await self._process.wait()
                await asyncio.sleep(AGAIN_AFTER)
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def ready(self) -> None:
        async with asyncio.timeout(READY_WITHIN), httpx.AsyncClient() as client:
            while True:
                with suppress(httpx.TransportError):
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.1)


class _EitherDoor(httpx.AsyncBaseTransport):
    """Sends each request to one of several ports."""

    def __init__(self, ports: list[int], chance: random.Random) -> None:
        self._ports, self._chance = ports, chance
        self._transport = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(port=self._chance.choice(self._ports))
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


@asynccontextmanager
async def second_api(installation: Installation, chance: random.Random) -> AsyncIterator[SecondApi]:
    """Ready, and from then on the installation's client goes to either process."""
    second = SecondApi(installation)
    keeping = asyncio.create_task(second.keep())
    first = installation.api
    try:
        await second.ready()
        assert first.base_url.port is not None
        installation.api = httpx.AsyncClient(
            base_url=first.base_url,
            headers=first.headers,
            timeout=first.timeout,
            transport=_EitherDoor([first.base_url.port, second.port], chance),
        )
        await first.aclose()
        yield second
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
