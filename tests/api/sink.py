"""A receiver of deliveries whose answers a test decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Delivery:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Sink:
    port: int = 0
    deliveries: list[Delivery] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Requests to ``/slow…`` are answered once it is set; those to ``/accept…`` with 202 at once."""
    failing: set[str] = field(default_factory=set)
    """Paths that are answered with 500."""
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def target(self, path: str, **more: object) -> dict[str, object]:
        return {"type": "http", "url": self.url(path), **more}

    async def delivery(self, path: str, count: int = 1) -> Delivery:
        """The delivery number ``count`` to a path, as soon as it is there."""
        async with asyncio.timeout(20), self.arrived:
            await self.arrived.wait_for(lambda: len(self.at(path)) >= count)
        return self.at(path)[count - 1]

    def at(self, path: str) -> list[Delivery]:
        return [delivery for delivery in self.deliveries if delivery.path == path]

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        async with self.arrived:
            self.deliveries.append(Delivery(request.path, headers, body))
            self.arrived.notify_all()
        if request.path.startswith("/slow"):
            await self.released.wait()
        if request.path.startswith("/accept"):
            return web.Response(status=202)
        if request.path in self.failing:
            return web.Response(status=500, text="no")
        return web.Response(text="ok")


@contextlib.asynccontextmanager
async def sink_server() -> AsyncIterator[Sink]:
    sink = Sink()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", sink.receive)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    sink.port = runner.addresses[0][1]
    try:
        yield sink
    finally:
        sink.released.set()
        await runner.cleanup()
