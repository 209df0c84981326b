"""The application on a port of the loopback, for clients that are no part of this process.

The socket is bound here and handed over, so whoever answers on it is the application under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx
import uvicorn
from fastapi import FastAPI

from tests.api.tokens import bearer


@contextlib.asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """The base URL of an application that is started already."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{bound.getsockname()[1]}"
        server = uvicorn.Server(
            uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=2)
        )
        task = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            await _answers(base)
            yield base
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, 10)


async def _answers(base: str) -> None:
    """Our token opens it: nobody else knows the secret it is signed with."""
    async with httpx.AsyncClient(base_url=base, headers=bearer("acme")) as client, asyncio.timeout(10):
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = await client.get("/v1/jobs?limit=1")
                assert answer.status_code == 200, answer.text
                return
            await asyncio.sleep(0.02)
