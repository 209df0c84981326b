"""What every test may share: one real embedded Temporal server a session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import hypothesis
import pytest
from temporalio.client import Client

from api.cli import tether
from api.cli.ports import choose_ports
from infra.settings import Settings
from infra.temporal.binary import find_binary
from infra.temporal.client import connect, connect_when_ready
from infra.temporal.embedded import EmbeddedServer
from infra.temporal.namespace import ensure_retention, ensure_search_attributes
from workflows.domain import job_changes

pytest_plugins = ["pytester", "tests.standstill"]

HOST = "127.0.0.1"
READY_WITHIN = timedelta(seconds=60)
STOP_WAIT = job_changes.STOP_WAIT
PATIENT_STOP_WAIT = timedelta(seconds=7)
"""Within the ten seconds in which the API wants an answer."""

hypothesis.settings.register_profile("shared machine", deadline=None)  # one example may wait for other tests
hypothesis.settings.load_profile("shared machine")


@pytest.fixture(scope="session", autouse=True)
def patient_stops() -> Iterator[None]:
    """Workers in the tests' own process wait longer for a word of a run that is to stop, so that what a
    stop answers does not depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_changes, "STOP_WAIT", PATIENT_STOP_WAIT)
        yield


@pytest.fixture
def hasty_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops wait as long as they do in production: for runs that are to say no word in time."""
    monkeypatch.setattr(job_changes, "STOP_WAIT", STOP_WAIT)


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server as ``carillon up`` starts it, without the web UI, on a free port and an empty database."""
    data_dir = tmp_path_factory.mktemp("temporal")
    port = choose_ports(HOST, {"--temporal-port": 0})["--temporal-port"]
    server = EmbeddedServer(
        binary=find_binary(environment=os.environ), data_dir=data_dir, port=port, ui_port=None, host=HOST
    )
    # Tethered, so that it ends with the tests even when these are killed.
    command = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *server.command()]
    with (data_dir / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=data_dir, stdout=log, stderr=log, process_group=0)
    try:
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
async def temporal_settings(
    temporal_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings of a process that works with the server, which is ready; the data directory is empty."""
    data_dir: Path = tmp_path_factory.mktemp("data")
    settings = Settings(
        data_dir=data_dir,
        temporal_address=temporal_server.address,
        temporal_namespace="default",
        database_url=f"sqlite+aiosqlite:///{data_dir / 'carillon.db'}",
        jwt_secret="test-jwt-secret-of-32-bytes-or-more",
        signing_secret="test-signing-secret-of-32-bytes-or-more",
        public_url="http://carillon.example",
        allow_networks=("127.0.0.0/8", "::1/128"),
    )
    client = await connect_when_ready(settings, within=READY_WITHIN)
    await ensure_search_attributes(client)
    await ensure_retention(client, settings.temporal_retention)
    return settings


@pytest.fixture(scope="session")
async def temporal_client(temporal_settings: Settings) -> Client:
    """Connected as the processes are."""
    return await connect(temporal_settings)
