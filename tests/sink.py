"""A real HTTP receiver that remembers what reached it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web


@dataclass(frozen=True)
class Arrival:
    at: float
    """Wall clock, seconds since the epoch."""
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def execution_id(self) -> str:
        return self.headers["carillon-execution-id"]

    @property
    def delivery(self) -> int:
        return int(self.headers["carillon-delivery"])


Answer = Callable[[Arrival, int], Awaitable[web.Response]]
"""Given an arrival and how many came to its path before it."""


@dataclass
class Sink:
    arrivals: list[Arrival] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    notices_hang_ups: bool = False
    """An answer under way is cancelled when its client closes the connection."""
    port: int = 0
    _runner: web.AppRunner | None = None
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def start(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._receive)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=self.notices_hang_ups
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.path == path]

    async def wait_for(self, path: str, count: int, within: float = 60) -> list[Arrival]:
        """The arrivals at ``path`` once there are ``count`` of them."""
        async with asyncio.timeout(within), self._arrived:
            await self._arrived.wait_for(lambda: len(self.at(path)) >= count)
        return self.at(path)

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        now = time.time()
        headers = {name.lower(): value for name, value in request.headers.items()}
        arrival = Arrival(now, request.path, headers, await request.read())
        before = len(self.at(arrival.path))
        self.arrivals.append(arrival)
        async with self._arrived:
            self._arrived.notify_all()
        answer = self.answers.get(arrival.path)
        return web.Response(text="ok") if answer is None else await answer(arrival, before)
