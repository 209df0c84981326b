"""Two API processes, killed in turn under many clients: no answer is taken back, none is given twice.

``CARILLON_CROWD_SECONDS=60 pytest tests/processes/test_two_apis.py`` is the long run.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from api.cli.ports import choose_ports
from infra.installation import settings_for
from tests.api.cli.installations import CARILLON, bare_environment
from tests.processes.conftest import TENANT, Installation, until_ready
from tests.sink import Sink
from workflows.contracts.job import JobView
from workflows.contracts.names import QUERY_VIEW, job_workflow_id

CLIENTS, JOBS = 30, 20
SECONDS = float(os.environ.get("CARILLON_CROWD_SECONDS", "20"))
EDITS = 10
PATIENCE = 60.0
"""Seconds that a slow machine has for so many edits, beyond those of the crowd."""
KILL_EVERY = 10.0 if SECONDS >= 60 else 5.0
EXPECTED = {200, 201, 202, 404, 409, 410, 412, 429, 503}


@dataclass
class SecondApi:
    """An API process beside the one of ``carillon up``, started again when it was killed."""

    installation: Installation
    port: int
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            CARILLON,
            "api",
            "--data-dir",
            self.installation.data_dir,
            "--port",
            str(self.port),
            env=bare_environment(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            await self.process.wait()


@dataclass
class Crowd:
    bases: list[str]
    headers: dict[str, str]
    sink: Sink
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    revisions: list[tuple[str, int]] = field(default_factory=list)
    """(job, revision) of every creation and edit that was answered with success."""
    broken: int = 0

    async def member(self, seed: int, until: float) -> None:
        chance = random.Random(seed)
        async with httpx.AsyncClient(headers=self.headers, timeout=20) as client:
            while self.goes_on(until):
                job = f"job-{chance.randrange(JOBS)}"
                name, method, path, body = self._deed(chance, job)
                try:
                    answer = await client.request(method, chance.choice(self.bases) + path, json=body)
                except httpx.HTTPError:
                    self.broken += 1  # its process was killed: the change may be applied or not
                    await asyncio.sleep(0.2)
                    continue
                self.statuses[name, answer.status_code] += 1
                if name in ("create", "edit") and answer.status_code in (200, 201):
                    self.revisions.append((job, answer.json()["revision"]))
                if answer.status_code == 429:
                    await asyncio.sleep(0.3)

    def goes_on(self, until: float) -> bool:
        now = time.monotonic()
        return now < until or (now < until + PATIENCE and self.statuses["edit", 200] < EDITS)

    def _deed(self, chance: random.Random, job: str) -> tuple[str, str, str, dict[str, Any] | None]:
        path = f"/v1/jobs/{job}"
        target = {"type": "http", "url": self.sink.url(f"/{job}")}
        said = {"description": f"{chance.random()}"}
        body = {"id": job, "schedule": {"every": "PT3S"}, "target": target, **said}
        deeds: list[tuple[str, str, str, dict[str, Any] | None]] = [
            ("create", "POST", "/v1/jobs", body),
            ("edit", "PATCH", path, said),
            ("pause", "POST", f"{path}/pause", {}),
            ("resume", "POST", f"{path}/resume", {}),
            ("trigger", "POST", f"{path}/trigger", {}),
            ("delete", "DELETE", path, None),
        ]
        return chance.choices(deeds, weights=[4, 6, 2, 2, 2, 1])[0]


async def test_index_and_temporal_agree_after_a_crowd_over_dying_apis(
    installation: Installation, sink: Sink
) -> None:
    port = choose_ports("127.0.0.1", {"--api-port": 0})["--api-port"]
    second = SecondApi(installation, port)
    await second.start()
    settings = settings_for(installation.data_dir)
    crowd = Crowd(
        [f"http://127.0.0.1:{settings.api_port}", f"http://127.0.0.1:{port}"],
        {"authorization": installation.api.headers["authorization"]},
        sink,
    )
    end = time.monotonic() + SECONDS

    async def kill_in_turn() -> None:
        turn = 0
        while time.monotonic() < end - 2:
            await asyncio.sleep(KILL_EVERY)
            assert installation.up is not None
            if turn % 2:
                await second.kill()
                await second.start()
            else:
                os.kill(installation.up.child("carillon api"), signal.SIGKILL)
            turn += 1

    try:
        await asyncio.gather(kill_in_turn(), *(crowd.member(seed, end) for seed in range(CLIENTS)))
        assert {status for _, status in crowd.statuses} <= EXPECTED, crowd.statuses
        assert crowd.statuses["edit", 200] >= EDITS, crowd.statuses
        assert max(Counter(crowd.revisions).values()) == 1, "a revision was given twice"
        await until_ready(crowd.bases[0])
        await _agreement(installation, crowd)
    finally:
        await second.kill()


async def _agreement(installation: Installation, crowd: Crowd) -> None:
    """Job by job; what a worker still has to write is waited for."""
    client = await installation.temporal()
    async with asyncio.timeout(60):
        for number in range(JOBS):
            job = f"job-{number}"
            known = [revision for name, revision in crowd.revisions if name == job]
            while True:
                answer = await installation.api.get(f"/jobs/{job}")
                listed = (await installation.api.get("/jobs", params={"q": job, "limit": 100})).json()[
                    "items"
                ]
                row = next((item for item in listed if item["id"] == job), None)
                if answer.status_code == 404:
                    if row is None:
                        break
                elif answer.status_code == 200 and row is not None:
                    ref = await _ref(client, job, answer.json())
                    view = await client.get_workflow_handle(job_workflow_id(TENANT, ref)).query(
                        QUERY_VIEW, result_type=JobView
                    )
                    same = (view.status, view.revision, view.definition.description)
                    if same == (row["status"], row["revision"], row["description"]):
                        assert view.revision >= max(known, default=0), "an answer was taken back"
                        break
                await asyncio.sleep(0.3)


async def _ref(client: Any, job: str, answer: dict[str, Any]) -> str:
    """The newest generation of a job that is alive, from Temporal alone."""
    query = f'CarillonTenant="{TENANT}" AND CarillonJob="{job}" AND ExecutionStatus="Running"'
    found = [run.id.rpartition("/")[2] async for run in client.list_workflows(query)]
    return max(found, key=lambda ref: int(ref.partition("~")[2] or 1))
