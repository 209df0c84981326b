"""The way to Temporal: connected when it is first needed, so that the process starts without it."""

from __future__ import annotations

import asyncio

from temporalio.client import Client

from infra.settings import Settings
from infra.temporal.client import connect
from infra.temporal.errors import SetupError

CONNECT_WITHIN_S = 3.0


class Connection:
    """One client a process. Once connected it reconnects by itself, and failures are RPC errors."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._attempt: asyncio.Task[Client] | None = None

    async def client(self) -> Client:
        """The client. Raises SetupError when the server cannot be reached: then nothing was sent."""
        if self._client is None:
            if self._attempt is None or self._attempt.done():
                self._attempt = asyncio.create_task(self._connect())
            self._client = await asyncio.shield(self._attempt)
        return self._client

    async def close(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.gather(self._attempt, return_exceptions=True)

    async def _connect(self) -> Client:
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                return await connect(self._settings)
        except TimeoutError:
            raise SetupError(
                f"no Temporal server answers at {self._settings.temporal_address} in time",
                code="temporal_unreachable",
            ) from None
