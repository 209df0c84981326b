"""Calls that reach the server of one's own installation, and none that has come to its address since."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from google.protobuf.message import Message
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode, ServiceClient

from infra.temporal.errors import SetupError
from infra.temporal.home import Home

SURE_FOR_S = 0.2
"""Less than a server takes from its start to its first answer, so that none takes another's place unseen."""
NEWS_FOR_S = 0.5
"""So old may an answer be for those who waited for it. It is older where this process stood still, and the
server may have been replaced meanwhile."""
_LOOKS = 5
AGAIN_FOR_S = 10.0
_FIRST_PAUSE_S, _GROWTH, _LONGEST_PAUSE_S = 0.1, 1.5, 2.0
_AGAIN = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNKNOWN,
        RPCStatusCode.ABORTED,
        RPCStatusCode.DATA_LOSS,
        RPCStatusCode.OUT_OF_RANGE,
    }
)
"""What the SDK itself would try again."""


def at_home(client: Client, home: Home | None) -> Client:
    """The client, whose calls reach ``home`` alone: none is sent, at first or again, unless a look was
    answered by it within ``SURE_FOR_S``. Raises RPCError (``UNAVAILABLE``) where another server answers.

    Workers made of it poll through the client as it was: by its token each task says whose it is.
    """
    if home is None:
        return client
    config = client.config()
    config["service_client"] = _OwnServer(client.service_client, home)
    return Client(**config)


class _OwnServer(ServiceClient):
    """Tries again by itself: the SDK's own tries would go to whoever listens by then."""

    def __init__(self, server: ServiceClient, home: Home) -> None:
        super().__init__(server.config)
        self._server = server
        self._home = home
        self._looking: asyncio.Task[float] | None = None
        self._sure_until = 0.0

    @property
    def worker_service_client(self) -> Any:
        return self._server.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        self._server.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._server.update_api_key(api_key)

    async def _rpc_call(
        self, rpc: str, req: Message, resp_type: Any, *,
        service: str, retry: bool, metadata: Mapping[str, str | bytes], timeout: timedelta | None,
    ) -> Any:  # fmt: skip
        until, pause = time.monotonic() + AGAIN_FOR_S, _FIRST_PAUSE_S
        while True:
            try:
                await self._sure(timeout)
                return await self._server._rpc_call(
                    rpc, req, resp_type, service=service, retry=False, metadata=metadata, timeout=timeout
                )
            except SetupError as foreign:
                raise RPCError(str(foreign), RPCStatusCode.UNAVAILABLE, b"") from None
            except RPCError as error:
                if error.status is RPCStatusCode.UNAVAILABLE:
                    self._sure_until = 0.0
                if not retry or error.status not in _AGAIN or time.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE_S)

    async def _sure(self, within: timedelta | None) -> None:
        """Raises RPCError (``UNAVAILABLE``) if nobody says in time whose server it is: nothing was sent."""
        if time.monotonic() < self._sure_until:
            return
        for _ in range(_LOOKS):
            asked = await self._look_together(within)
            if time.monotonic() < asked + NEWS_FOR_S:
                return
        raise RPCError(
            "the Temporal server is too slow in saying whose it is", RPCStatusCode.UNAVAILABLE, b""
        )

    async def _look_together(self, within: timedelta | None) -> float:
        """When the look began whose answer is there now: one for all that wait, also when it fails, for a
        server that hangs would answer none of theirs."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(_heard)
        look = self._looking
        await asyncio.wait({look}, timeout=None if within is None else within.total_seconds())
        if not look.done():
            raise RPCError(
                "nobody said in time whose Temporal server this is", RPCStatusCode.UNAVAILABLE, b""
            )
        if isinstance(error := look.exception(), RPCError):
            unknown = f"nobody said whose Temporal server this is: {error.message}"
            raise RPCError(unknown, RPCStatusCode.UNAVAILABLE, b"") from error
        return look.result()

    async def _look(self) -> float:
        asked = time.monotonic()
        await self._home.look()
        self._sure_until = asked + SURE_FOR_S
        return asked


def _heard(look: asyncio.Task[float]) -> None:
    """A failure is told to those who still wait; none may."""
    if not look.cancelled():
        look.exception()
