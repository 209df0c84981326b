"""The API process: uvicorn on the application."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn

import uvicorn

from api.cli.leave import leave
from infra.settings import Settings
from infra.temporal.errors import SetupError

_GRACE_SECONDS = 2
"""How long requests and event streams may go on after SIGTERM."""
_KEEP_ALIVE_SECONDS = 65
"""Longer than load balancers and client pools keep an idle connection, usually a minute: who closes first
must not be we, while a request is on its way."""
_BACKLOG = 2048


class _Server(uvicorn.Server):
    """Signals are ours: uvicorn's own handling ends a clean stop with the signal instead of status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: Settings) -> NoReturn:
    """Serves the API until SIGTERM or SIGINT; a second signal drops the requests in flight."""
    from api.app import create_app

    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.api_host,
        port=settings.api_port,
        backlog=_BACKLOG,
        log_config=None,
        access_log=False,  # paths of callbacks are secrets
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    server = _Server(config)

    def ask_to_stop() -> None:
        app.state.carillon.streams.end()
        server.force_exit = server.should_exit
        server.should_exit = True

    async def until_stopped() -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ask_to_stop)
        try:
            await server.serve()
        except SystemExit:  # how uvicorn reports a port that is taken, after logging it
            raise SetupError(
                f"the API cannot listen at {settings.api_host}:{settings.api_port}; name another --port",
                code="port_taken",
            ) from None
        leave(0 if server.started else 3)

    asyncio.run(until_stopped())
    raise AssertionError("unreachable")
