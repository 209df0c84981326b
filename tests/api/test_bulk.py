"""One action on many jobs, through the death of workers and without the database for a while."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from temporalio.client import Client

from activities.bulk import Bulk
from api.app import create_app
from infra.database.errors import DatabaseUnavailable
from infra.database.jobs import JobIndex
from infra.settings import Settings
from tests.api.conftest import client_of, started, working
from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.api.test_problems import assert_problem
from workflows.contracts.bulk import BulkOrder
from workflows.contracts.job import JobView
from workflows.contracts.names import QUERY_VIEW, bulk_workflow_id, job_workflow_id

FAR = {"cron": "0 9 1 1 *"}
COUNT = 60

pytestmark = [
    pytest.mark.usefixtures("undisturbed"),
    # A planning that ended as its job was evicted from the cache; as an error it would end the worker.
    pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning"),
]


@contextlib.asynccontextmanager
async def api_of(app: FastAPI, tenant: str) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app, tenant) as client:
        yield client


async def jobs_of(api: httpx.AsyncClient, sink: Sink, count: int = COUNT, **more: Any) -> list[str]:
    ids = [f"job-{number:03}" for number in range(count)]
    jobs = [{"id": job, "schedule": FAR, "target": sink.target(f"/bulk/{job}"), **more} for job in ids]
    made = await api.post("/v1/jobs/batch", json={"jobs": jobs})
    assert [result["status"] for result in made.json()["results"]] == [201] * count
    return ids


async def ask(api: httpx.AsyncClient, action: str, filter_: dict[str, Any] | None = None, **more: Any) -> Any:
    answer = await api.post("/v1/jobs/bulk", json={"filter": filter_ or {}, "action": action, **more})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/bulk/{answer.json()['id']}"
    return answer.json()


async def ended(api: httpx.AsyncClient, bulk: dict[str, Any], within: float = 60) -> dict[str, Any]:
    return await eventually(api, f"/v1/bulk/{bulk['id']}", lambda b: b["state"] == "completed", within)


async def views(client: Client, tenant: str, jobs: list[str]) -> list[JobView]:
    return [
        await client.get_workflow_handle(job_workflow_id(tenant, job)).query(QUERY_VIEW, result_type=JobView)
        for job in jobs
    ]


async def test_a_dry_run_counts_and_names_and_changes_nothing(
    live: FastAPI, live_settings: Settings, sink: Sink
) -> None:
    async with working(live_settings), api_of(live, "bulk-dry") as api:
        await jobs_of(api, sink, 30, labels={"set": "a"})
        for filter_, matched in (
            ({"label": "set=a"}, 30),
            ({"label": ["set=a"], "q": "job-01"}, 10),
            ({"status": "paused"}, 0),
            ({"status": ["active", "paused"], "target": "/bulk/job-029"}, 1),
            ({"outcome": ["succeeded"]}, 0),
        ):
            done = await ended(api, await ask(api, "delete", filter_, dry_run=True))
            assert (done["matched"], done["done"], done["failed"]) == (matched, 0, 0)
            assert len(done["sample"]) == min(matched, 20)
        assert len((await api.get("/v1/jobs?limit=200")).json()["items"]) == 30


@pytest.mark.parametrize(
    ("cached", "action", "status"),
    [(1000, "pause", "paused"), (0, "delete", "deleted")],
    ids=["cached", "replaying"],
)
async def test_every_job_is_changed_once_although_its_worker_is_stopped_in_the_middle(
    live: FastAPI,
    live_settings: Settings,
    live_temporal: Client,
    sink: Sink,
    cached: int,
    action: str,
    status: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another worker goes on with the rest of the page, and with the pages behind it.

    Where every task is replayed the jobs plan nothing: a cache of 0 drops what many of them plan at once.
    """
    monkeypatch.setattr("activities.bulk.PAGE", 25)
    tenant = f"bulk-stopped-{cached}"
    async with api_of(live, tenant) as api:
        async with working(live_settings, max_cached_workflows=cached, bulk_rate=40):
            jobs = await jobs_of(api, sink, paused=action == "delete")
            bulk = await ask(api, action, {"target": "http"})
            await eventually(api, f"/v1/bulk/{bulk['id']}", lambda b: b["matched"] == COUNT)
            await asyncio.sleep(0.7)
        async with working(live_settings, max_cached_workflows=cached):
            done = await ended(api, bulk)
            assert (done["matched"], done["done"], done["failed"]) == (COUNT, COUNT, 0)
            found = await views(live_temporal, tenant, jobs)
            assert {view.status for view in found} == {status}
            assert {view.change for view in found} == {2}, "each job was changed once"
            left = COUNT if action == "pause" else 0
            await eventually(api, "/v1/jobs?limit=200", lambda p: len(p["items"]) == left)
            entries = (await api.get("/v1/audit?limit=200")).json()["items"]
            assert len([entry for entry in entries if entry["operation"] == action]) == COUNT


async def test_an_activity_that_dies_after_its_work_does_nothing_twice(
    live: FastAPI, live_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers never reached the server: all updates are sent again under their names."""
    sent = Bulk._send
    died: list[str] = []
    calls = 0

    async def send(self: Bulk, order: BulkOrder, job: Any) -> int:
        nonlocal calls
        calls += 1
        revision = await sent(self, order, job)
        if job.job == "job-019" and not died:
            died.append(job.job)
            raise RuntimeError("the worker dies here")
        return revision

    monkeypatch.setattr(Bulk, "_send", send)
    async with working(live_settings), api_of(live, "bulk-died") as api:
        await jobs_of(api, sink, 20)
        done = await ended(api, await ask(api, "trigger"))
        assert died
        assert calls > 20
        assert (done["done"], done["failed"]) == (20, 0)
        for job in range(20):
            await sink.delivery(f"/bulk/job-{job:03}")
        runs = await eventually(
            api,
            "/v1/executions?limit=200",
            lambda p: sum(item["outcome"] == "succeeded" for item in p["items"]) == 20,
        )
        assert len(runs["items"]) == 20, "each job ran once"


async def test_what_cannot_be_done_is_named_and_the_rest_is_done(
    live: FastAPI, live_settings: Settings, sink: Sink
) -> None:
    sink.released.clear()
    async with working(live_settings), api_of(live, "bulk-failed") as api:
        await jobs_of(api, sink, 4)
        body = {"id": "busy", "schedule": FAR, "target": sink.target("/slow/bulk")}
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
        assert (await api.post("/v1/jobs/busy/trigger")).status_code == 202
        await sink.delivery("/slow/bulk")
        done = await ended(api, await ask(api, "trigger"))
        assert (done["matched"], done["done"], done["failed"]) == (5, 4, 1)
        [problem] = done["problems"]
        assert (problem["job"], problem["type"]) == ("busy", "urn:carillon:problem:run-active")
        sink.released.set()
        done = await ended(api, await ask(api, "delete"))
        assert (done["done"], done["failed"]) == (5, 0)
        await eventually(api, "/v1/jobs", lambda p: p["items"] == [])


async def test_jobs_created_after_it_was_asked_are_not_concerned(
    live: FastAPI, live_settings: Settings, sink: Sink
) -> None:
    async with api_of(live, "bulk-later") as api, working(live_settings, bulk_rate=4):
        await jobs_of(api, sink, 6)
        bulk = await ask(api, "pause")
        body = {"id": "zz-later", "schedule": FAR, "target": sink.target("/later")}
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
        done = await ended(api, bulk)
        assert done["done"] == 6
        assert (await api.get("/v1/jobs/zz-later")).json()["status"] == "active"


async def test_it_waits_for_the_database_and_goes_on_when_that_is_back(
    live: FastAPI, live_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = JobIndex.page
    away = asyncio.Event()
    asked = asyncio.Event()

    async def gone(self: JobIndex, *arguments: Any, **more: Any) -> Any:
        if not away.is_set():
            asked.set()
            raise DatabaseUnavailable("the database is away")
        return await page(self, *arguments, **more)

    async with working(live_settings), api_of(live, "bulk-away") as api:
        await jobs_of(api, sink, 5)
        monkeypatch.setattr(JobIndex, "page", gone)
        bulk = await ask(api, "pause")
        await asyncio.wait_for(asked.wait(), 10)
        read = await api.get(f"/v1/bulk/{bulk['id']}")
        assert (read.json()["state"], read.json()["matched"]) == ("running", None)
        away.set()
        assert (await ended(api, bulk))["done"] == 5


async def test_it_is_asked_once_under_one_key_and_by_any_process(
    live: FastAPI, live_settings: Settings, sink: Sink
) -> None:
    headers = {"idempotency-key": "one-bulk"}
    body = {"filter": {}, "action": "trigger"}
    async with (
        working(live_settings),
        api_of(live, "bulk-key") as api,
        started(create_app(live_settings)) as second,
        api_of(second, "bulk-key") as other,
    ):
        await jobs_of(api, sink, 3)
        answers = await asyncio.gather(
            *(client.post("/v1/jobs/bulk", json=body, headers=headers) for client in (api, other, api, other))
        )
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["id"] for answer in answers}) == 1
        done = await ended(other, answers[0].json())
        assert (done["done"], done["failed"]) == (3, 0)
        again = await api.post("/v1/jobs/bulk", json=body, headers=headers)
        assert again.json()["id"] == answers[0].json()["id"]
        mismatch = await api.post("/v1/jobs/bulk", json={**body, "action": "pause"}, headers=headers)
        assert mismatch.status_code == 422
        runs = await eventually(api, "/v1/executions", lambda p: len(p["items"]) >= 3)
        assert len(runs["items"]) == 3


async def test_without_a_worker_it_is_asked_for_again_under_its_key(
    live: FastAPI, live_settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins once, and the failure that was answered is nobody's surprise later."""
    headers = {"idempotency-key": "nobody-there"}
    body = {"filter": {}, "action": "pause"}
    async with api_of(live, "bulk-nobody") as api:
        with monkeypatch.context() as hasty:
            hasty.setattr("api.bulks.ANSWER_WITHIN_S", 0.5)
            problem = assert_problem(await api.post("/v1/jobs/bulk", json=body, headers=headers), 503)
        assert "Idempotency-Key" in problem["detail"]
        gc.collect()
        assert not [one for one in caplog.records if one.name == "asyncio"]
        async with working(live_settings):
            again = await api.post("/v1/jobs/bulk", json=body, headers=headers)
            assert again.status_code == 202
            assert (await ended(api, again.json()))["matched"] == 0


async def test_three_may_be_under_way_and_nobody_sees_anothers(
    live: FastAPI, live_settings: Settings, sink: Sink
) -> None:
    async with api_of(live, "bulk-three") as api, api_of(live, "bulk-other") as other:
        async with working(live_settings, bulk_rate=1):
            await jobs_of(api, sink, 5)
            body = {"filter": {}, "action": "pause"}
            asked = await asyncio.gather(*(api.post("/v1/jobs/bulk", json=body) for _ in range(5)))
            assert sorted(answer.status_code for answer in asked) == [202, 202, 202, 429, 429]
            assert all(answer.headers["retry-after"] for answer in asked if answer.status_code == 429)
            first = next(answer.json() for answer in asked if answer.status_code == 202)
            assert (await other.get(f"/v1/bulk/{first['id']}")).status_code == 404
            assert (await other.post("/v1/jobs/bulk", json={**body, "dry_run": True})).status_code == 202
        async with working(live_settings):
            for answer in asked:
                if answer.status_code == 202:
                    await ended(api, answer.json())
            await ended(api, await ask(api, "resume"))
            await eventually(api, "/v1/jobs?status=active", lambda p: len(p["items"]) == 5)


async def test_what_is_not_a_bulk_is_refused(live: FastAPI) -> None:
    async with api_of(live, "bulk-bad") as api:
        for body, pointer in (
            ({"action": "pause"}, "/filter"),
            ({"filter": {}}, "/action"),
            ({"filter": {}, "action": "explode"}, "/action"),
            ({"filter": {"status": "gone"}, "action": "pause"}, "/filter/status"),
            ({"filter": {"label": "team"}, "action": "pause"}, "/filter/label"),
            ({"filter": {"lable": "a=b"}, "action": "pause"}, "/filter/lable"),
        ):
            answer = await api.post("/v1/jobs/bulk", json=body)
            assert answer.status_code == 422, answer.text
            assert answer.json()["errors"][0]["pointer"] == pointer
        for unknown in ("nope", "a b", "x" * 64):
            assert (await api.get(f"/v1/bulk/{unknown}")).status_code == 404


async def test_a_long_one_continues_as_new_and_loses_nothing(
    live: FastAPI,
    live_settings: Settings,
    live_temporal: Client,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("activities.bulk.PAGE", 1)
    async with working(live_settings), api_of(live, "bulk-long") as api:
        jobs = await jobs_of(api, sink, 55)
        done = await ended(api, await ask(api, "pause"))
        assert (done["matched"], done["done"], done["failed"]) == (55, 55, 0)
        assert {view.change for view in await views(live_temporal, "bulk-long", jobs)} == {2}
        handle = live_temporal.get_workflow_handle(bulk_workflow_id("bulk-long", done["id"]))
        begun = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        assert begun.continued_execution_run_id
