"""The way to Temporal: connected when it is first needed, so that the process starts without it."""

from __future__ import annotations

import asyncio
import logging

from temporalio.client import Client
from temporalio.service import RPCError

from infra.settings import Settings
from infra.temporal.client import connect
from infra.temporal.errors import SetupError
from infra.temporal.home import LOOK_EVERY, Home, home_of
from infra.temporal.own_server import at_home

log = logging.getLogger(__name__)

CONNECT_WITHIN_S = 3.0


class Connection:
    """One client a process. Once connected it reconnects by itself, and failures are RPC errors."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._attempt: asyncio.Task[Client] | None = None
        self._home: Home | None = None
        self._foreign: SetupError | None = None

    async def client(self) -> Client:
        """The client. Raises SetupError when the server cannot be reached or is another installation's: then
        nothing was sent."""
        self._refuse_foreign()
        if self._client is None:
            if self._attempt is None or self._attempt.done():
                self._attempt = asyncio.create_task(self._connect())
            self._client = await asyncio.shield(self._attempt)
        return self._client

    async def watch(self) -> None:
        """Notices, once connected, that the address has become another's; goes on for good."""
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            if self._home is not None:
                await self._look(self._home)

    async def close(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.gather(self._attempt, return_exceptions=True)

    async def _connect(self) -> Client:
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                client = await connect(self._settings)
                self._home = home_of(client, self._settings)
                if self._home is not None:
                    await self._look(self._home)
        except TimeoutError:
            raise SetupError(
                f"no Temporal server answers at {self._settings.temporal_address} in time",
                code="temporal_unreachable",
            ) from None
        self._refuse_foreign()
        return at_home(client, self._home)

    def _refuse_foreign(self) -> None:
        if self._foreign is not None:
            raise SetupError(str(self._foreign), code=self._foreign.code)

    async def _look(self, home: Home) -> None:
        try:
            await home.look()
        except SetupError as error:
            if self._foreign is None:
                log.error("%s", error)
            self._foreign = error
        except RPCError:
            pass  # those who ask something notice it themselves
        else:
            self._foreign = None
