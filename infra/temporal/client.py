"""Connections to a Temporal server, and the SDK's runtime."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

from temporalio.client import Client, TLSConfig
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError

from infra.settings import Settings
from infra.temporal.converter import DATA_CONVERTER
from infra.temporal.errors import SetupError
from infra.temporal.namespace import retention
from infra.temporal.resent_updates import ResentUpdates

WORKER_HEARTBEATS = timedelta(seconds=60)
"""Must stay on: without worker records the server sends no commands, and cancels wait for a heartbeat."""


def make_runtime(*, prometheus_address: str | None = None) -> Runtime:
    """The SDK's runtime, one a process; with ``host:port`` it serves the SDK's own metrics there."""
    metrics = PrometheusConfig(bind_address=prometheus_address) if prometheus_address else None
    return Runtime(telemetry=TelemetryConfig(metrics=metrics), worker_heartbeat_interval=WORKER_HEARTBEATS)


async def connect(settings: Settings, *, runtime: Runtime | None = None, lazy: bool = False) -> Client:
    """A client of the configured namespace with the pydantic data converter.

    ``lazy`` connects with the first call. Raises SetupError (``temporal_unreachable``) when nothing answers.
    """
    try:
        return await Client.connect(
            settings.temporal_address,
            namespace=settings.temporal_namespace,
            data_converter=DATA_CONVERTER,
            interceptors=[ResentUpdates()],
            api_key=settings.temporal_api_key.get_secret_value() if settings.temporal_api_key else None,
            tls=_tls(settings),
            runtime=runtime,
            lazy=lazy,
        )
    except RuntimeError as error:
        raise SetupError(
            f"no Temporal server answers at {settings.temporal_address} ({error}); "
            "start it, or set CARILLON_TEMPORAL_ADDRESS",
            code="temporal_unreachable",
        ) from error


async def connect_when_ready(
    settings: Settings,
    *,
    within: timedelta,
    alive: Callable[[], bool] = lambda: True,
    runtime: Runtime | None = None,
) -> Client:
    """Connects as soon as the server answers and its namespace can be read.

    Gives up, with SetupError, after ``within`` or once ``alive`` says that the server's process has ended.
    """
    end = time.monotonic() + within.total_seconds()
    while True:
        try:
            client = await connect(settings, runtime=runtime)
            if await client.service_client.check_health(timeout=timedelta(seconds=2)):
                await retention(client)
                return client
        except (SetupError, RPCError):
            if not alive() or time.monotonic() > end:
                raise
        await asyncio.sleep(0.05)


def _tls(settings: Settings) -> TLSConfig | bool:
    if settings.temporal_tls_cert is not None and settings.temporal_tls_key is not None:
        return TLSConfig(
            client_cert=settings.temporal_tls_cert.read_bytes(),
            client_private_key=settings.temporal_tls_key.read_bytes(),
        )
    return settings.temporal_tls
