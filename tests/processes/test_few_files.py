"""A worker that may open few files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from aiohttp import web

from tests.api.cli.installations import CARILLON, bare_environment
from tests.processes.conftest import installed
from tests.sink import Arrival, Sink

FILES, CROWD = 96, 120


@pytest.mark.timeout(180)
async def test_a_crowd_waits_for_the_files_of_its_worker_and_uses_no_attempts(
    tmp_path: Path, sink: Sink
) -> None:
    """That it may open no further connection is no failure of the target."""

    async def slowly(_: Arrival, __: int) -> web.Response:
        await asyncio.sleep(3)
        return web.Response(text="ok")

    log = tmp_path / "worker.txt"
    async with installed(tmp_path / "data", "--workers", "0") as installation:
        with log.open("wb") as file:
            worker = await asyncio.create_subprocess_exec(
                "sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh",
                sys.executable, CARILLON, "worker", "--data-dir", installation.data_dir,
                env=bare_environment(), stdout=file, stderr=file,
            )  # fmt: skip
        try:
            for number in range(CROWD):
                sink.answers[f"/{number}"] = slowly
            jobs = [
                {
                    "id": f"crowd-{number}",
                    "schedule": {"in": 8},
                    "target": {"type": "http", "url": sink.url(f"/{number}")},
                }
                for number in range(CROWD)
            ]
            answer = await installation.api.post("/jobs/batch", json={"jobs": jobs})
            assert {result["status"] for result in answer.json()["results"]} == {201}
            for number in range(CROWD):
                await sink.wait_for(f"/{number}", 1, within=90)
            assert {arrival.headers["carillon-attempt"] for arrival in sink.arrivals} == {"1"}
        finally:
            worker.terminate()
            assert await worker.wait() == 0
    assert f"of {FILES} files open" in log.read_text()
