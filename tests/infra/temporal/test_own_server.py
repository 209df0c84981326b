"""Calls reach the server of one's own installation only, also when another takes its place meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from api.cli.ports import choose_ports
from infra.settings import Settings
from infra.temporal import own_server
from infra.temporal.binary import find_binary
from infra.temporal.client import connect, connect_when_ready
from infra.temporal.embedded import EmbeddedServer
from infra.temporal.home import Home, namespace_id
from infra.temporal.own_server import at_home
from tests.conftest import HOST, READY_WITHIN


class Counted(Home):
    looks = 0

    async def look(self) -> None:
        self.looks += 1
        await super().look()


def prepared(data_dir: Path, port: int) -> tuple[str, ...]:
    data_dir.mkdir(exist_ok=True)
    binary = find_binary(environment=os.environ)
    return EmbeddedServer(binary=binary, data_dir=data_dir, port=port, ui_port=None, host=HOST).command()


@asynccontextmanager
async def serving(data_dir: Path, port: int) -> AsyncIterator[Client]:
    async with server(data_dir, port) as (_, client):
        yield client


@asynccontextmanager
async def server(data_dir: Path, port: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, Client]]:
    """A server of its own, killed at the end."""
    command = prepared(data_dir, port)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=data_dir, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        settings = Settings(temporal_address=f"{HOST}:{port}", temporal_namespace="default")
        yield process, await connect_when_ready(settings, within=READY_WITHIN)
    finally:
        process.kill()
        await process.wait()


def freeze(pid: int) -> None:
    """Returns when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    while any(stat.read_text().rpartition(") ")[2][0] != "T" for stat in threads.glob("*/stat")):
        time.sleep(0.01)


async def start(client: Client, workflow_id: str) -> None:
    await client.start_workflow("job", id=workflow_id, task_queue="nobody")


async def ids(client: Client) -> list[str]:
    return [one.id async for one in client.list_workflows()]


async def test_what_was_asked_of_one_server_is_not_done_by_the_next(tmp_path: Path) -> None:
    """A call that finds nobody is tried again for a while, and by then the next server may listen."""
    port = choose_ports(HOST, {"--temporal-port": 0})["--temporal-port"]
    async with serving(tmp_path / "one", port) as client:
        own = at_home(client, Home(client, await namespace_id(client)))
        await start(own, "before")
    asked = [asyncio.create_task(start(own, f"meanwhile-{number}")) for number in range(5)]
    async with serving(tmp_path / "other", port) as other:
        refused = await asyncio.gather(*asked, return_exceptions=True)
        assert [getattr(error, "status", error) for error in refused] == [RPCStatusCode.UNAVAILABLE] * 5
        with pytest.raises(RPCError, match="another's"):
            await own.get_workflow_handle("before").describe()
        await asyncio.sleep(2)  # what is listed follows what was started
        assert await ids(other) == []


async def test_one_look_does_for_many_calls(temporal_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_server, "SURE_FOR_S", 60)
    home = Counted(temporal_client, await namespace_id(temporal_client))
    own, prefix = at_home(temporal_client, home), f"own-{uuid4()}"
    await asyncio.gather(*(start(own, f"{prefix}-{number}") for number in range(20)))
    assert home.looks == 1
    await asyncio.gather(*(own.get_workflow_handle(f"{prefix}-{n}").terminate() for n in range(20)))
    assert home.looks == 1


async def test_an_old_answer_is_not_enough(temporal_client: Client) -> None:
    """This process stood still over it, and meanwhile the server was replaced."""

    class Replaced(Counted):
        async def look(self) -> None:
            self.looks += 1
            if self.looks > 1:
                self.compare("of the next one")
            await asyncio.sleep(own_server.NEWS_FOR_S + 0.1)

    own, prefix = at_home(temporal_client, Replaced(temporal_client, "ours")), f"old-{uuid4()}"
    calls = (start(own, f"{prefix}-{number}") for number in range(5))
    refused = await asyncio.gather(*calls, return_exceptions=True)
    assert ["another's" in str(error) for error in refused] == [True] * 5
    for number in range(5):
        with pytest.raises(RPCError, match="not found"):
            await temporal_client.get_workflow_handle(f"{prefix}-{number}").describe()


async def test_a_server_that_comes_back_is_waited_for(tmp_path: Path) -> None:
    port = choose_ports(HOST, {"--temporal-port": 0})["--temporal-port"]
    async with serving(tmp_path / "one", port) as client:
        own = at_home(client, Home(client, await namespace_id(client)))
    asked = asyncio.create_task(start(own, "meanwhile"))
    async with serving(tmp_path / "one", port) as client:
        await asked
        assert (await client.get_workflow_handle("meanwhile").describe()).id == "meanwhile"


async def test_a_server_that_hangs_is_not_asked_by_each_that_waits(tmp_path: Path) -> None:
    """One look after the other would take as many times its bound; and what was never sent says so."""
    port = choose_ports(HOST, {"--temporal-port": 0})["--temporal-port"]
    async with server(tmp_path / "one", port) as (process, client):
        home = Counted(client, await namespace_id(client))
        own = at_home(client, home)
        freeze(process.pid)
        refused = await asyncio.gather(*(start(own, f"{n}") for n in range(20)), return_exceptions=True)
        assert [getattr(error, "status", error) for error in refused] == [RPCStatusCode.UNAVAILABLE] * 20
        assert home.looks <= 4
        process.send_signal(signal.SIGCONT)
        await start(own, "after")


async def test_without_a_known_id_the_client_stays_as_it_is(temporal_settings: Settings) -> None:
    client = await connect(temporal_settings)
    assert at_home(client, None) is client
    assert await client.service_client.check_health(timeout=timedelta(seconds=5))
