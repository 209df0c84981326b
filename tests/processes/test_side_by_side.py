"""Installations that take turns at the same ports, as two do that are started with the defaults."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from tests.api.cli.installations import CARILLON, bare_environment
from tests.processes.conftest import installed, until_ready
from tests.sink import Sink


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def joined(data_dir: Path, log: Path, *command: str) -> asyncio.subprocess.Process:
    """A process of the installation that ``carillon up`` does not know of."""
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            sys.executable, CARILLON, *command, "--data-dir", data_dir,
            env=bare_environment(), stdout=file, stderr=file,
        )  # fmt: skip


@pytest.mark.timeout(240)
async def test_who_has_joined_one_installation_does_nothing_for_the_next_at_its_port(
    tmp_path: Path, sink: Sink
) -> None:
    """The other's overdue run waits for the other's own workers, and is in its own history."""
    ports = ("--temporal-port", str(free_port()), "--workers", "0")
    api = free_port()
    log = tmp_path / "joined.txt"
    async with installed(tmp_path / "second", *ports) as second:
        await second.create(
            id="theirs", schedule={"in": 1}, target={"type": "http", "url": sink.url("/theirs")}
        )
        await second.stop()
        async with installed(tmp_path / "first", *ports) as first:
            worker = await joined(first.data_dir, log, "worker")
            server = await joined(first.data_dir, log, "api", "--port", str(api))
            try:
                await first.create(
                    id="ours", schedule={"in": 1}, target={"type": "http", "url": sink.url("/ours")}
                )
                await sink.wait_for("/ours", 1, within=60)
                await until_ready(f"http://127.0.0.1:{api}", 200)
                await first.stop()
                await second.start(*ports)
                assert await asyncio.wait_for(worker.wait(), 60) == 1
                await until_ready(f"http://127.0.0.1:{api}", 503)
            finally:
                for process in (worker, server):
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
        late = await joined(first.data_dir, log, "worker")
        assert await asyncio.wait_for(late.wait(), 60) == 1
        errors = [line.split()[2] for line in log.read_text().splitlines() if "ERROR" in line]
        assert sorted(errors) == ["api.connection", "workers.main", "workers.main"]
        assert [arrival.path for arrival in sink.arrivals] == ["/ours"]
        own = await second.start_worker()
        try:
            await second.until_executions(
                "theirs", lambda found: [one["outcome"] for one in found] == ["succeeded"], within=90
            )
        finally:
            own.terminate()
            await own.wait()
