"""The application over real parts, and clients with tokens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from api.app import create_app
from infra.settings import Settings
from infra.temporal.client import connect, connect_when_ready
from infra.temporal.namespace import ensure_search_attributes
from tests.api.contract import checker
from tests.api.sink import Sink, sink_server
from tests.api.tokens import SECRET, bearer

NAMESPACE = "api-tests"


@contextlib.asynccontextmanager
async def started(app: FastAPI) -> AsyncIterator[FastAPI]:
    """The application as a server would run it, once its database is migrated."""
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app.state.carillon.wait_migrated(), 10)
        yield app


@contextlib.asynccontextmanager
async def working(settings: Settings, **changes: object) -> AsyncIterator[None]:
    """A worker process's composition, in this process, for as long as the block lasts; its end is that of a
    process that is told to stop."""
    from workers.main import run

    stop = asyncio.Event()
    task = asyncio.create_task(run(settings.model_copy(update=changes), stop=stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)


def client_of(app: FastAPI, tenant: str = "acme", scope: str = "jobs:read jobs:write") -> httpx.AsyncClient:
    """A client whose every answer is held against the OpenAPI document."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://api",
        headers=bearer(tenant, scope),
        timeout=30,
        event_hooks={"response": [checker(app)]},
    )


def settings_in(directory: Path, **more: object) -> Settings:
    values: dict[str, object] = {
        "data_dir": directory,
        "database_url": f"sqlite+aiosqlite:///{directory / 'carillon.db'}",
        "jwt_secret": SECRET,
        "signing_secret": SECRET,
        "allow_networks": ("127.0.0.0/8",),
        "temporal_address": "127.0.0.1:1",
        "public_url": "http://api",
        "create_rate": 1000.0,
        "request_rate": 100_000.0,
        **more,
    }
    return Settings.model_validate(values)


@pytest.fixture(scope="session")
async def offline(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FastAPI]:
    """An application whose Temporal is away; its database is there."""
    async with started(create_app(settings_in(tmp_path_factory.mktemp("offline")))) as app:
        yield app


@pytest.fixture(scope="session")
async def offline_client(offline: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(offline) as client:
        yield client


@pytest.fixture(scope="session")
async def own_namespace(temporal_settings: Settings, temporal_client: Client) -> Settings:
    """A namespace that no other test's worker serves."""
    retention = Duration()
    retention.FromTimedelta(timedelta(days=3))
    await temporal_client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=NAMESPACE, workflow_execution_retention_period=retention)
    )
    settings = temporal_settings.model_copy(update={"temporal_namespace": NAMESPACE})
    client = await connect_when_ready(settings, within=timedelta(seconds=30))
    await ensure_search_attributes(client)
    return settings


@pytest.fixture(scope="session")
async def live_settings(own_namespace: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_in(
        tmp_path_factory.mktemp("live"),
        temporal_address=own_namespace.temporal_address,
        temporal_namespace=own_namespace.temporal_namespace,
        worker_grace=timedelta(seconds=1),
    )


@pytest.fixture(scope="session")
async def live(live_settings: Settings) -> AsyncIterator[FastAPI]:
    """An application over the real server; no worker unless a test asks for one."""
    async with started(create_app(live_settings)) as app:
        yield app


@pytest.fixture(scope="session")
async def live_temporal(live_settings: Settings) -> Client:
    return await connect(live_settings)


@pytest.fixture
async def api(live: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(live) as client:
        yield client


@pytest.fixture(scope="module")
async def undisturbed(live_temporal: Client) -> None:
    """Ends what other modules left: a worker would plan their hundreds of jobs before this module's."""
    async for left in live_temporal.list_workflows('ExecutionStatus = "Running"'):
        try:
            await live_temporal.get_workflow_handle(left.id, run_id=left.run_id).terminate("tests are over")
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it may have ended by itself
                raise


@pytest.fixture(scope="module")
async def worker(live_settings: Settings, undisturbed: None) -> AsyncIterator[None]:
    """A worker for all tests of the module."""
    async with working(live_settings):
        yield


@pytest.fixture(scope="session")
async def sink() -> AsyncIterator[Sink]:
    async with sink_server() as served:
        yield served
