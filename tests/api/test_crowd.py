"""Many clients at once: afterwards index and Temporal agree, and no revision was given twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest
from fastapi import FastAPI
from temporalio.client import Client

from api.state import AppState
from tests.api.conftest import client_of
from tests.api.sink import Sink
from workflows.contracts.job import JobView
from workflows.contracts.names import QUERY_VIEW, job_workflow_id

pytestmark = pytest.mark.usefixtures("worker")

CLIENTS, JOBS, SECONDS = 12, 5, 4.0
PATIENCE = 60.0
"""Seconds that a slow machine has besides for what the test wants to have happened."""
TENANT = "crowd"


class Crowd:
    def __init__(self, app: FastAPI, sink: Sink) -> None:
        self.app = app
        self.sink = sink
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.edits: list[tuple[str, int]] = []

    async def member(self, seed: int, until: float) -> None:
        chance = random.Random(seed)
        async with client_of(self.app, TENANT) as api:
            while self.goes_on(until):
                job = f"job-{chance.randrange(JOBS)}"
                name, method, path, body = self._deed(chance, job)
                answer = await api.request(method, path, json=body)
                self.statuses[name, answer.status_code] += 1
                if name == "edit" and answer.status_code == 200:
                    self.edits.append((job, answer.json()["revision"]))

    def goes_on(self, until: float) -> bool:
        now = time.monotonic()
        return now < until or (now < until + PATIENCE and not self.has_done_enough())

    def has_done_enough(self) -> bool:
        return self.statuses["edit", 200] > 10 and self.statuses["delete", 200] > 1

    def _deed(self, chance: random.Random, job: str) -> tuple[str, str, str, dict[str, Any] | None]:
        path = f"/v1/jobs/{job}"
        body = {"id": job, "schedule": {"every": "PT1S"}, "target": self.sink.target(f"/crowd/{job}")}
        deeds: list[tuple[str, str, str, dict[str, Any] | None]] = [
            ("create", "POST", "/v1/jobs", body),
            ("edit", "PATCH", path, {"description": f"{chance.random()}"}),
            ("pause", "POST", f"{path}/pause", {}),
            ("resume", "POST", f"{path}/resume", {}),
            ("trigger", "POST", f"{path}/trigger", {}),
            ("delete", "DELETE", path, None),
            ("read", "GET", path, None),
        ]
        return chance.choices(deeds, weights=[4, 6, 2, 2, 2, 1, 4])[0]


async def test_parallel_clients_leave_index_and_workflows_in_agreement(
    live: FastAPI, live_temporal: Client, sink: Sink
) -> None:
    crowd = Crowd(live, sink)
    end = time.monotonic() + SECONDS
    await asyncio.gather(*(crowd.member(seed, end) for seed in range(CLIENTS)))
    unexpected = {
        found: count
        for found, count in crowd.statuses.items()
        if found[1] not in (200, 201, 202, 404, 409, 412, 503)
    }
    assert not unexpected
    assert crowd.statuses["edit", 412] == 0, "nobody asked for a revision"
    assert crowd.has_done_enough(), crowd.statuses
    assert max(Counter(crowd.edits).values()) == 1, "a revision was given twice"
    await agreement(live.state.carillon, live_temporal)
    async with client_of(live, TENANT) as api:
        for job in (await api.get("/v1/jobs")).json()["items"]:
            assert (await api.delete(f"/v1/jobs/{job['id']}")).status_code == 200


async def agreement(state: AppState, client: Client) -> None:
    """Each job's row says what its workflow says, as soon as the workers have written what they know."""
    async with asyncio.timeout(20):
        for number in range(JOBS):
            while not await _agree(state, client, f"job-{number}"):
                await asyncio.sleep(0.1)


async def _agree(state: AppState, client: Client, job: str) -> bool:
    stored = await state.index.get(TENANT, job)
    if stored is None:
        return True
    handle = client.get_workflow_handle(job_workflow_id(TENANT, stored.ref))
    view: JobView = await handle.query(QUERY_VIEW, result_type=JobView)
    said = (view.status, view.revision, view.change, view.definition, view.pause)
    return said == (stored.status, stored.revision, stored.change, stored.definition, stored.pause)
