"""Leaving out one occurrence: which instants can be, and what becomes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.api.test_outages import without_database

pytestmark = pytest.mark.usefixtures("worker")


async def create(api: httpx.AsyncClient, sink: Sink, job: str, **more: Any) -> dict[str, Any]:
    body = {"id": job, "schedule": {"every": "PT1H"}, "target": sink.target(f"/{job}"), **more}
    made = await api.post("/v1/jobs", json=body)
    assert made.status_code == 201, made.text
    document: dict[str, Any] = made.json()
    return document


async def test_a_skipped_occurrence_leaves_next_runs_until_it_is_taken_back(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    made = await create(api, sink, "skips")
    assert made["skips"] == []
    first, second, *_ = [run["scheduled_time"] for run in made["next_runs"]]
    skipped = await api.post("/v1/jobs/skips/skip", json={"scheduled_time": second})
    assert skipped.status_code == 200, skipped.text
    job = skipped.json()
    assert (job["skips"], job["in_flight"], job["revision"]) == ([second], [], 1)
    times = [run["scheduled_time"] for run in job["next_runs"]]
    assert times[0] == first
    assert second not in times
    assert len(times) == 5
    assert (await api.get("/v1/jobs/skips")).json()["skips"] == [second]
    document = (await api.get("/v1/jobs/skips")).json()
    put = await api.put("/v1/jobs/skips", json={**document, "priority": 1})
    assert put.status_code == 200, "what an answer adds may be sent back"
    assert put.json()["skips"] == [second], "an edit leaves a skip alone"
    for _ in range(2):
        back = await api.post("/v1/jobs/skips/unskip", json={"scheduled_time": second})
        assert (back.status_code, back.json()["skips"]) == (200, [])
    assert [run["scheduled_time"] for run in back.json()["next_runs"]][1] == second


async def test_a_skipped_occurrence_does_not_run_and_is_recorded(api: httpx.AsyncClient, sink: Sink) -> None:
    """Held already, it is stopped."""
    made = await create(api, sink, "left-out", schedule={"in": "PT5S"})
    at = made["next_runs"][0]["scheduled_time"]
    await eventually(
        api, "/v1/jobs/left-out/executions", lambda p: p["items"] and p["items"][0]["outcome"] == "held"
    )
    skipped = await api.post("/v1/jobs/left-out/skip", json={"scheduled_time": at})
    assert (skipped.status_code, skipped.json()["in_flight"]) == (200, [])
    page = await eventually(
        api, "/v1/jobs/left-out/executions", lambda p: p["items"] and p["items"][0]["outcome"] == "skipped"
    )
    assert page["items"][0]["reason"] == "asked"
    assert sink.at("/left-out") == []
    served = await api.post("/v1/jobs/left-out/skip", json={"scheduled_time": at})
    assert served.status_code in (409, 422), "its time has passed"


async def test_an_instant_that_is_none_is_refused_with_the_nearest(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    made = await create(api, sink, "beside-it", schedule={"cron": "0 9 * * *", "timezone": "Europe/London"})
    first, second, *_ = [run["scheduled_time"] for run in made["next_runs"]]
    between = (datetime.fromisoformat(first) + timedelta(hours=1)).isoformat()
    refused = await api.post("/v1/jobs/beside-it/skip", json={"scheduled_time": between})
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["errors"][0]["pointer"] == "/scheduled_time"
    assert problem["nearest"] == [first, second]
    assert first in problem["detail"]
    fraction = (datetime.fromisoformat(first) + timedelta(milliseconds=1)).isoformat()
    for wrong in ({"scheduled_time": fraction}, {}, {"scheduled_time": "2030-01-01"}, {"at": first}):
        assert (await api.post("/v1/jobs/beside-it/skip", json=wrong)).status_code == 422


async def test_what_was_served_or_runs_cannot_be_skipped(api: httpx.AsyncClient, sink: Sink) -> None:
    sink.released.clear()
    made = await create(api, sink, "slow-skip", schedule={"every": "PT1S"}, target=sink.target("/slow/skip"))
    await sink.delivery("/slow/skip")
    current = await eventually(
        api, "/v1/jobs/slow-skip/executions", lambda p: p["items"] and p["items"][0]["outcome"] == "running"
    )
    running = current["items"][0]
    refused = await api.post("/v1/jobs/slow-skip/skip", json={"scheduled_time": running["scheduled_time"]})
    assert (refused.status_code, refused.json()["active"]) == (409, running["key"])
    anchor = made["schedule"]["anchor"]
    past = (datetime.fromisoformat(anchor) - timedelta(seconds=0)).isoformat()
    assert (await api.post("/v1/jobs/slow-skip/skip", json={"scheduled_time": past})).status_code in (
        409,
        422,
    )
    await api.delete("/v1/jobs/slow-skip?running=cancel")


async def test_a_repeat_under_its_key_changes_nothing_more_also_without_the_database(
    api: httpx.AsyncClient, sink: Sink, live: FastAPI
) -> None:
    made = await create(api, sink, "once-skipped")
    at = made["next_runs"][0]["scheduled_time"]
    headers = {"idempotency-key": "skip-once"}
    with without_database(live):
        await api.get("/v1/jobs/once-skipped")
        first = await api.post("/v1/jobs/once-skipped/skip", json={"scheduled_time": at}, headers=headers)
        assert first.status_code == 200, first.text
        await api.post("/v1/jobs/once-skipped/unskip", json={"scheduled_time": at})
        again = await api.post("/v1/jobs/once-skipped/skip", json={"scheduled_time": at}, headers=headers)
        assert again.status_code == 200
    assert (await api.get("/v1/jobs/once-skipped")).json()["skips"] == []


async def test_skips_are_bounded(api: httpx.AsyncClient, sink: Sink) -> None:
    await create(api, sink, "many-skips", schedule={"every": "PT1M", "anchor": "2026-01-01T00:00:00Z"})
    begin = (datetime.now(UTC) + timedelta(hours=1)).replace(second=0, microsecond=0)
    for minute in range(100):
        at = (begin + timedelta(minutes=minute)).isoformat()
        assert (await api.post("/v1/jobs/many-skips/skip", json={"scheduled_time": at})).status_code == 200
    at = (begin + timedelta(minutes=100)).isoformat()
    refused = await api.post("/v1/jobs/many-skips/skip", json={"scheduled_time": at})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:too-many-skips")
