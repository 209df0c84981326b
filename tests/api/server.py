"""The application behind a real socket, for what an in-process client cannot see: streams and their ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import uvicorn
from fastapi import FastAPI


class Server(uvicorn.Server):
    """Leaves signals to the tests."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def url(self) -> str:
        port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def serving(app: FastAPI, *, lifespan: bool = True) -> AsyncIterator[Server]:
    """As ``carillon api`` serves it, with its grace of two seconds."""
    config = uvicorn.Config(
        app,
        port=0,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        lifespan="on" if lifespan else "off",
    )
    server = Server(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 20)
