"""A client that a generator made of the document drives a job's whole life over a socket."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.api.server import serving
from tests.api.sink import Sink
from tests.api.tokens import token

pytestmark = pytest.mark.usefixtures("worker")

NAME = "generated_carillon_client"


@pytest.fixture
def generated(live: FastAPI, tmp_path: Path) -> Iterator[None]:
    """The package, importable. A warning of the generator is a fault of the document."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(live.openapi()))
    beside = Path(sys.executable).parent  # it formats what it made with the ruff it finds
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", document, "--meta", "none",
         "--output-path", tmp_path / NAME, "--fail-on-warning"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"},
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(tmp_path))
    try:
        yield
    finally:
        sys.path.remove(str(tmp_path))
        for module in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[module]


def part(path: str) -> Any:
    return importlib.import_module(f"{NAME}.{path}" if path else NAME)


async def test_a_generated_client_creates_lists_runs_reads_and_deletes(
    generated: None, live: FastAPI, sink: Sink
) -> None:
    models = part("models")
    jobs = {name: part(f"api.jobs.{name}") for name in ("create_job", "list_jobs", "get_job", "trigger_job")}
    jobs["delete_job"] = part("api.jobs.delete_job")
    executions = part("api.executions.list_job_executions")
    asked = {
        "id": "by-a-client",
        "schedule": {"cron": "0 9 1 1 *"},
        "target": sink.target("/by-a-client", body={"a": 1}),
        "labels": {"made": "by-a-client"},
    }
    async with serving(live, lifespan=False) as server:
        client = part("").AuthenticatedClient(
            base_url=server.url, token=token("generated"), raise_on_unexpected_status=True
        )
        async with client:
            body = models.JobRequest.from_dict(asked)
            made = await jobs["create_job"].asyncio_detailed(
                client=client, body=body, idempotency_key="by-a-client"
            )
            assert made.status_code == 201
            assert (made.parsed.id, made.parsed.schedule.cron) == ("by-a-client", "0 9 1 1 *")
            page = await jobs["list_jobs"].asyncio(client=client, label=["made=by-a-client"])
            assert [job.id for job in page.items] == ["by-a-client"]
            job = await jobs["get_job"].asyncio("by-a-client", client=client)
            assert job.labels.to_dict() == {"made": "by-a-client"}
            assert job.next_runs[0].scheduled_time.tzinfo is not None
            run = await jobs["trigger_job"].asyncio(
                "by-a-client", client=client, body=models.TriggerBody(request="once")
            )
            assert run.key == "generated/by-a-client:manual-once"
            assert (await sink.delivery("/by-a-client")).body == b'{"a":1}'
            async with asyncio.timeout(20):
                while True:
                    history = await executions.asyncio("by-a-client", client=client)
                    if history.items and history.items[0].outcome == "succeeded":
                        break
                    await asyncio.sleep(0.05)
            assert [attempt.status_code for attempt in history.items[0].attempts] == [200]
            deleted = await jobs["delete_job"].asyncio("by-a-client", client=client)
            assert (deleted.id, deleted.in_flight) == ("by-a-client", [])
            gone = await jobs["get_job"].asyncio_detailed("by-a-client", client=client)
            assert (gone.status_code, gone.parsed.type_) == (404, "urn:carillon:problem:not-found")
