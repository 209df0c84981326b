"""The embedded server's command line."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from temporalio.client import Client

from infra.temporal.binary import find_binary
from infra.temporal.dynamic_config import DYNAMIC_CONFIG
from infra.temporal.embedded import EmbeddedServer, running_values
from workflows.contracts.names import SEARCH_ATTRIBUTES


def _server(*, ui_port: int | None = 2, durable: bool = False) -> EmbeddedServer:
    binary = find_binary(environment=os.environ)
    return EmbeddedServer(binary=binary, data_dir=Path("/data"), port=1, ui_port=ui_port, durable=durable)


@pytest.mark.parametrize("ui_port", [2, None], ids=["ui", "headless"])
def test_the_installed_release_knows_every_flag(ui_port: int | None) -> None:
    server = _server(ui_port=ui_port)
    shown = subprocess.run(
        [server.binary, "server", "start-dev", "--help"], capture_output=True, text=True, check=True
    ).stdout
    shown += subprocess.run([server.binary, "--help"], capture_output=True, text=True, check=True).stdout
    shown += subprocess.run([server.binary, "options"], capture_output=True, text=True, check=True).stdout
    assert [flag for flag in server.command() if flag.startswith("--") and f"{flag} " not in shown] == []


@pytest.mark.parametrize(("durable", "synchronous"), [(False, "normal"), (True, "full")])
def test_write_ahead_log_and_how_long_a_commit_waits(durable: bool, synchronous: str) -> None:
    pairs = list(pairwise(_server(durable=durable).command()))
    pragmas = [value for option, value in pairs if option == "--sqlite-pragma"]
    assert pragmas == ["journal_mode=wal", f"synchronous={synchronous}"]


def test_search_attributes_and_dynamic_config_are_given() -> None:
    pairs = list(pairwise(_server().command()))
    attributes = [value for option, value in pairs if option == "--search-attribute"]
    values = [value for option, value in pairs if option == "--dynamic-config-value"]
    assert attributes == [f"{name}=Keyword" for name in SEARCH_ATTRIBUTES]
    assert 'history.timerProcessorMaxTimeShift="50ms"' in values  # JSON: with its quotes
    assert "history.timerQueueMaxReaderCount=1" in values
    assert 'history.timerProcessorUpdateAckInterval="5s"' in values
    assert "history.queueReaderStuckCriticalAttempts=1000000" in values
    assert len(values) == len(DYNAMIC_CONFIG) == 9


async def test_the_running_server_has_the_values(
    temporal_server: EmbeddedServer, temporal_client: Client
) -> None:
    """What a process was started with can be read again, and another port's is not mistaken for it."""
    assert await temporal_client.service_client.check_health()
    assert running_values(temporal_server.port) == {value.key: value.value for value in DYNAMIC_CONFIG}
    assert running_values(1) is None
