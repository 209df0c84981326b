"""Nobody works: creations and reads go on, changes say so within ten seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from temporalio.client import Client

from api.app import create_app
from infra.settings import Settings
from tests.api.conftest import client_of, started
from tests.stopwatch import Stopwatch
from workflows.contracts.job import JobState
from workflows.contracts.names import job_workflow_id

TARGET = {"type": "http", "url": "https://example.com/hook"}


def daily(**more: Any) -> dict[str, Any]:
    return {"schedule": {"cron": "0 9 * * *", "timezone": "Europe/Paris"}, "target": TARGET, **more}


async def test_a_job_is_created_and_read_as_stale(api: httpx.AsyncClient) -> None:
    created = await api.post("/v1/jobs", json=daily(id="alone", labels={"team": "billing"}))
    assert created.status_code == 201, created.text
    assert created.headers["location"] == "/v1/jobs/alone"
    assert created.headers["etag"] == '"1"'
    job = created.json()
    assert job["status"] == "active"
    assert job["tenant"] == "acme"
    assert job["stale"] is False
    assert job["schedule"] == {
        "cron": "0 9 * * *", "timezone": "Europe/Paris", "gap": "shift", "fold": "first",
    }  # fmt: skip
    assert len(job["next_runs"]) == 5
    assert job["next_runs"][0]["local"].endswith(("+01:00", "+02:00"))

    with Stopwatch() as reading:
        read = await api.get("/v1/jobs/alone")
    assert reading.seconds < 5, "it asks for two"
    assert read.status_code == 200
    assert read.json() == {**job, "stale": True, "skips": None}


async def test_the_workflow_is_started_with_what_its_run_needs(
    api: httpx.AsyncClient, live_temporal: Client
) -> None:
    before = datetime.now(UTC)
    await api.post("/v1/jobs", json={"id": "started", "schedule": {"in": "PT10M"}, "target": TARGET})
    handle = live_temporal.get_workflow_handle(job_workflow_id("acme", "started"))
    described = await handle.describe()
    first = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    [state] = await live_temporal.data_converter.decode(list(first.input.payloads), [JobState])
    assert before <= state.cursor <= datetime.now(UTC)
    assert state.cursor == state.created_at
    assert state.definition.schedule.in_ is None
    assert (
        timedelta(minutes=9, seconds=59)
        < state.definition.schedule.at - before
        < timedelta(minutes=10, seconds=5)
    )
    assert state.created_by == "tester"
    assert first.priority.fairness_key == "acme"
    assert first.priority.priority_key == 3
    found = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert found == {"CarillonTenant": "acme", "CarillonJob": "started", "CarillonRef": "started"}
    assert await described.static_summary() == "started of acme"


async def test_a_one_off_just_past_is_not_behind_its_cursor(
    api: httpx.AsyncClient, live_temporal: Client
) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=30)).replace(microsecond=0)
    made = await api.post(
        "/v1/jobs", json={"id": "just-past", "schedule": {"at": at.isoformat()}, "target": TARGET}
    )
    assert made.status_code == 201, made.text
    history = await live_temporal.get_workflow_handle(job_workflow_id("acme", "just-past")).fetch_history()
    payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
    [state] = await live_temporal.data_converter.decode(list(payloads), [JobState])
    assert state.cursor == at - timedelta(seconds=1)


async def test_one_that_lies_further_back_is_refused(api: httpx.AsyncClient) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=90)).isoformat()
    for path, body in (
        ("/v1/jobs", {"schedule": {"at": at}, "target": TARGET}),
        ("/v1/schedules/preview", {"schedule": {"at": at}}),
    ):
        refused = await api.post(path, json=body)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/schedule/at"
        assert "in the past" in refused.json()["detail"]


async def test_a_change_is_answered_within_ten_seconds_and_says_it_may_still_be_applied(
    api: httpx.AsyncClient,
) -> None:
    await api.post("/v1/jobs", json=daily(id="unheard"))
    with Stopwatch() as changing:
        answer = await api.post("/v1/jobs/unheard/pause", json={"reason": "nobody listens"})
    assert changing.seconds < 12
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["type"] == "urn:carillon:problem:no-answer"
    assert "may still be applied" in answer.json()["detail"]


async def test_a_patch_that_cannot_be_merged_was_not_applied(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json=daily(id="unmerged"))
    answer = await api.patch("/v1/jobs/unmerged", json={"priority": 1})
    assert answer.status_code == 503
    assert "not applied" in answer.json()["detail"]


async def test_a_replayed_creation_is_the_same_job(api: httpx.AsyncClient) -> None:
    first = await api.post("/v1/jobs", json=daily(), headers={"idempotency-key": "k1"})
    again = await api.post("/v1/jobs", json=daily(), headers={"idempotency-key": "k1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = await api.post("/v1/jobs", json=daily(priority=1), headers={"idempotency-key": "k1"})
    assert other.status_code == 422
    assert other.json()["type"] == "urn:carillon:problem:idempotency-mismatch"


async def test_an_id_in_use_is_409_and_another_tenants_job_is_404(
    api: httpx.AsyncClient, live: FastAPI
) -> None:
    assert (await api.post("/v1/jobs", json=daily(id="id-in-use-1"))).status_code == 201
    assert (await api.post("/v1/jobs", json=daily(id="id-in-use-1", priority=1))).status_code == 409
    async with client_of(live, "other") as other:
        for call in (
            other.get("/v1/jobs/mine"),
            other.delete("/v1/jobs/mine"),
            other.patch("/v1/jobs/mine", json={}),
            other.post("/v1/jobs/mine/pause"),
            other.get("/v1/jobs/mine/executions"),
        ):
            assert (await call).status_code == 404
        assert (await other.get("/v1/jobs")).json()["items"] == []
        assert (await other.post("/v1/jobs", json=daily(id="id-in-use-1"))).status_code == 201


async def test_a_batch_answers_for_each_job_in_order_and_can_be_repeated(live: FastAPI) -> None:
    async with client_of(live, "batches") as api:
        assert (await api.post("/v1/jobs", json=daily(id="there"))).status_code == 201
        jobs = [
            daily(id="b1"),
            daily(id="there", priority=1),
            {"target": TARGET},
            daily(),
            daily(id="b2", paused=True),
        ]
        headers = {"idempotency-key": "batch-1"}
        first = (await api.post("/v1/jobs/batch", json={"jobs": jobs}, headers=headers)).json()["results"]
        assert [result["status"] for result in first] == [201, 409, 422, 201, 201]
        assert first[2]["problem"]["errors"][0]["pointer"] == "/schedule"
        assert first[4]["job"]["status"] == "paused"
        again = (await api.post("/v1/jobs/batch", json={"jobs": jobs}, headers=headers)).json()["results"]
        assert [result["status"] for result in again] == [201, 409, 422, 201, 201]
        assert again[3]["job"]["id"] == first[3]["job"]["id"]
        assert len((await api.get("/v1/jobs")).json()["items"]) == 4


async def test_the_largest_job_there_can_be(live: FastAPI) -> None:
    """Temporal bounds ids, summaries and details too."""
    job = "j" * 128
    content = {"text": "☕" * 15_000, "number": 2**200}
    target = {**TARGET, "body": content}
    async with client_of(live, "t" * 63) as api:
        made = await api.post("/v1/jobs", json=daily(id=job, description="é" * 2000, target=target))
        assert made.status_code == 201, made.text[:500]
        assert made.json()["target"]["body"] == target["body"]
        assert (await api.get("/v1/jobs")).json()["items"][0]["target"]["body"] == target["body"]
        content["text"] = "☕" * 30_000
        assert (await api.post("/v1/jobs", json=daily(target=target))).status_code == 413


async def test_a_batch_of_200_is_created_in_one_call(live: FastAPI) -> None:
    async with client_of(live, "many") as api:
        jobs = [daily(id=f"job-{number}") for number in range(200)]
        answer = await api.post("/v1/jobs/batch", json={"jobs": jobs})
        assert {result["status"] for result in answer.json()["results"]} == {201}
        assert len((await api.get("/v1/jobs?limit=200")).json()["items"]) == 200


@pytest.mark.parametrize("sort", ["id", "-created_at"])
async def test_pages_hold_each_job_once_while_others_come_and_go(live: FastAPI, sort: str) -> None:
    async with client_of(live, f"pages-{sort.strip('-')[:2]}") as api:
        ids = [f"job-{number:02}" for number in range(0, 20, 2)]
        for job in ids:
            assert (await api.post("/v1/jobs", json=daily(id=job))).status_code == 201
        seen: list[str] = []
        cursor: str | None = None
        while True:
            query: dict[str, Any] = {"limit": 3, "sort": sort} | ({"cursor": cursor} if cursor else {})
            page = (await api.get("/v1/jobs", params=query)).json()
            seen += [item["id"] for item in page["items"]]
            await api.post("/v1/jobs", json=daily(id=f"job-{len(seen):02}x"))
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert sorted(set(ids) & set(seen)) == ids
        assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("quota", "status", "retry_after"),
    [({"max_jobs": 1}, 409, None), ({"create_rate": 0.001}, 429, "1000")],
    ids=["no room", "too fast"],
)
async def test_quotas(
    live_settings: Settings, tmp_path: Path, quota: dict[str, Any], status: int, retry_after: str | None
) -> None:
    database = f"sqlite+aiosqlite:///{tmp_path / 'own.db'}"
    app = create_app(live_settings.model_copy(update={"database_url": database, **quota}))
    async with started(app), client_of(app, f"quota-{status}") as client:
        assert (await client.post("/v1/jobs", json=daily(id="first"))).status_code == 201
        refused = await client.post("/v1/jobs", json=daily(id="second"))
    assert refused.status_code == status, refused.text
    assert refused.headers.get("retry-after") == retry_after


async def test_pages_over_equal_instants_of_creation_lose_and_double_nothing(live: FastAPI) -> None:
    """All jobs of a batch are accepted at one instant, to the microsecond."""
    async with client_of(live, "equals") as api:
        jobs = [daily(id=f"job-{number:02}") for number in range(30)]
        made = (await api.post("/v1/jobs/batch", json={"jobs": jobs})).json()["results"]
        assert len({result["job"]["created_at"] for result in made}) == 1
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 7, "sort": "-created_at"}
        while True:
            page = (await api.get("/v1/jobs", params=query)).json()
            seen += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        assert seen == [job["id"] for job in jobs]


async def test_a_local_time_is_stored_and_answered_in_utc(api: httpx.AsyncClient) -> None:
    at = {"at": "2030-07-31T09:00:00", "timezone": "Asia/Shanghai"}
    made = await api.post("/v1/jobs", json={"id": "local", "schedule": at, "target": TARGET})
    assert made.json()["schedule"]["at"] == "2030-07-31T01:00:00Z"
    assert made.json()["next_runs"] == [
        {
            "scheduled_time": "2030-07-31T01:00:00Z",
            "fires_at": "2030-07-31T01:00:00Z",
            "local": "2030-07-31T09:00:00+08:00",
        }
    ]
    listed = (await api.get("/v1/jobs?q=local")).json()["items"][0]
    assert listed["schedule"] == made.json()["schedule"]


async def test_an_interval_is_anchored_at_its_acceptance_and_runs_after_it(api: httpx.AsyncClient) -> None:
    body = {"id": "interval", "schedule": {"every": "PT90S"}, "target": TARGET}
    job = (await api.post("/v1/jobs", json=body)).json()
    anchor = datetime.fromisoformat(job["schedule"]["anchor"])
    accepted = datetime.fromisoformat(job["created_at"])
    assert anchor == accepted.replace(microsecond=0)
    first = datetime.fromisoformat(job["next_runs"][0]["scheduled_time"])
    assert first == anchor + timedelta(seconds=90)
