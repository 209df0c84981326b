"""A batch is done once: by the caller who began it, or by the next one after that caller has died."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI
from temporalio.client import Client

from api.app import create_app
from api.jobs import creation
from infra.settings import Settings
from tests.api.conftest import client_of, started
from tests.api.eventually import eventually
from workflows.contracts.job import JobState, JobView
from workflows.contracts.names import QUERY_VIEW, job_workflow_id

pytestmark = pytest.mark.usefixtures("worker")

COUNT = 200
TARGET = {"type": "http", "url": "https://example.com/hook"}
JOBS: list[dict[str, Any]] = [
    {"schedule": {"cron": "0 9 1 1 *"}, "target": TARGET, "labels": {"place": str(place)}}
    | ({"id": f"named-{place}"} if place % 2 else {})
    for place in range(COUNT)
]


@pytest.fixture
async def second(live_settings: Settings) -> AsyncIterator[FastAPI]:
    """Another API process over the same installation."""
    async with started(create_app(live_settings)) as app:
        yield app


@pytest.mark.parametrize("begun", [0, 70, COUNT], ids=["reserved", "half-started", "started"])
async def test_a_batch_whose_caller_died_is_carried_on_by_a_repeat(
    live: FastAPI, second: FastAPI, live_temporal: Client, monkeypatch: pytest.MonkeyPatch, begun: int
) -> None:
    tenant = f"batch-died-{begun}"
    start_job, starts = creation.start_job, 0
    reached, dead = asyncio.Event(), asyncio.Event()

    async def start(client: Client, state: JobState) -> None:
        nonlocal starts
        starts += 1
        if starts <= begun:
            await start_job(client, state)
        if starts >= min(begun + 1, COUNT):
            reached.set()
            await dead.wait()
            raise asyncio.CancelledError

    monkeypatch.setattr(creation, "start_job", start)
    headers = {"idempotency-key": "one-batch"}
    async with client_of(live, tenant) as api, client_of(second, tenant) as other:
        first = asyncio.create_task(api.post("/v1/jobs/batch", json={"jobs": JOBS}, headers=headers))
        await asyncio.wait_for(reached.wait(), 20)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        monkeypatch.undo()
        repeated = await other.post("/v1/jobs/batch", json={"jobs": JOBS}, headers=headers)
        dead.set()
        results = repeated.json()["results"]
        assert [result["status"] for result in results] == [201] * COUNT
        jobs = [result["job"] for result in results]
        assert [job["labels"]["place"] for job in jobs] == [str(place) for place in range(COUNT)]
        assert len({job["id"] for job in jobs}) == COUNT
        page = await eventually(other, "/v1/jobs?limit=200", lambda p: len(p["items"]) == COUNT)
        assert {job["id"] for job in page["items"]} == {job["id"] for job in jobs}
        assert page["next_cursor"] is None
        for job in jobs[::20]:
            handle = live_temporal.get_workflow_handle(job_workflow_id(tenant, job["id"]))
            view: JobView = await handle.query(QUERY_VIEW, result_type=JobView)
            assert (view.generation, view.revision) == (1, 1)
        again = await other.post("/v1/jobs/batch", json={"jobs": JOBS}, headers=headers)
        assert [result["job"]["id"] for result in again.json()["results"]] == [job["id"] for job in jobs]


async def test_each_result_is_that_of_the_single_call(live: FastAPI) -> None:
    """But for what a header of it says."""
    jobs: list[dict[str, Any]] = [
        {"id": "fine", "schedule": {"every": "PT1H"}, "target": TARGET, "paused": True},
        {"id": "Not An Id", "schedule": {"every": "PT1H"}, "target": TARGET},
        {"id": "zero", "schedule": {"every": 0}, "target": TARGET},
        {"id": "misspelt", "shedule": {"every": "PT1H"}, "target": TARGET},
        {"id": "unbuilt", "schedule": {"every": "PT1H"}, "target": {"type": "queue"}},
        {"id": "private", "schedule": {"every": "PT1H"}, "target": {**TARGET, "url": "http://10.0.0.1/"}},
    ]
    moments = ("tenant", "created_at", "updated_at", "schedule", "pause")
    async with client_of(live, "batch-same") as api, client_of(live, "single-same") as single:
        results = (await api.post("/v1/jobs/batch", json={"jobs": jobs})).json()["results"]
        for job, result in zip(jobs, results, strict=True):
            alone = await single.post("/v1/jobs", json=job)
            assert result["status"] == alone.status_code, job
            if alone.status_code == 201:
                left, right = result["job"], alone.json()
                assert {k: v for k, v in left.items() if k not in moments} == {
                    k: v for k, v in right.items() if k not in moments
                }
            else:
                assert result["problem"] == alone.json()


@pytest.mark.parametrize("count", [0, 201])
async def test_a_batch_holds_1_to_200_jobs(live: FastAPI, count: int) -> None:
    async with client_of(live, "batch-bounds") as api:
        answer = await api.post("/v1/jobs/batch", json={"jobs": [JOBS[0]] * count})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/jobs"
