"""What lists say of runs: filters over executions, and counts that outlive every process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from api.app import create_app
from infra.settings import Settings
from tests.api.conftest import client_of, started, working
from tests.api.sink import Sink

pytestmark = pytest.mark.usefixtures("undisturbed")

FAR = {"cron": "0 9 1 1 *"}


async def run_once(api: httpx.AsyncClient, job: str, request: str) -> None:
    """Triggers a run and waits for its end in the job's own words and in the list's."""
    assert (await api.post(f"/v1/jobs/{job}/trigger", json={"request": request})).status_code == 202
    async with asyncio.timeout(20):
        while True:
            own = (await api.get(f"/v1/jobs/{job}")).json()
            [listed] = (await api.get(f"/v1/jobs?q={job}")).json()["items"]
            last = own["last_run"]
            if last and last["key"].endswith(request) and last["ended_at"] and listed["last_run"] == last:
                return
            await asyncio.sleep(0.05)


async def test_counts_and_last_run_are_right_after_every_process_has_ended(
    live_settings: Settings, sink: Sink
) -> None:
    """Three workers and two API processes, one after another; list and job agree, and count each run once."""
    for number in range(3):
        async with started(create_app(live_settings)) as app, client_of(app, "restarts") as api:
            if number == 0:
                body = {"id": "counted", "schedule": FAR, "target": sink.target("/counted")}
                assert (await api.post("/v1/jobs", json=body)).status_code == 201
            async with working(live_settings):
                await run_once(api, "counted", f"r{number}")
                own = (await api.get("/v1/jobs/counted")).json()
            [listed] = (await api.get("/v1/jobs")).json()["items"]
            assert listed["stats"] == own["stats"]
            assert (listed["stats"]["runs"], listed["stats"]["succeeded"]) == (number + 1, number + 1)
            assert listed["last_run"] == own["last_run"]
    assert len(sink.at("/counted")) == 3


FILTERS = [
    ("", ["b", "a"]),
    ("job=a", ["a"]),
    ("label=team=x", ["a"]),
    ("label=team=x&label=tier=1", []),
    ("target=/lists-b", ["b"]),
    ("trigger=manual", ["b", "a"]),
    ("trigger=schedule", []),
    ("outcome=succeeded", ["b", "a"]),
    ("outcome=dead_lettered&outcome=skipped", []),
    ("job=nobody", []),
    ("until=2020-01-01T00:00:00Z", []),
]


async def test_executions_are_found_by_every_filter_and_show_their_revision(
    live_settings: Settings, sink: Sink
) -> None:
    async with (
        started(create_app(live_settings)) as app,
        client_of(app, "filters") as api,
        working(live_settings),
    ):
        for job, labels in (("a", {"team": "x"}), ("b", {"team": "y"})):
            body = {"id": job, "schedule": FAR, "labels": labels, "target": sink.target(f"/lists-{job}")}
            assert (await api.post("/v1/jobs", json=body)).status_code == 201
            await api.patch(f"/v1/jobs/{job}", json={"priority": 1})
            await run_once(api, job, "r")
        for query, wanted in FILTERS:
            answer = await api.get(f"/v1/executions?{query}")
            items: list[dict[str, Any]] = answer.json()["items"]
            assert [item["job"] for item in items] == wanted, query
        whole = (await api.get("/v1/executions")).json()["items"]
        assert [(item["revision"], item["attempts"][0]["revision"]) for item in whole] == [(2, 2), (2, 2)]
        for query in ("label=team", "outcome=fine", "trigger=x", "jobs=a", "since=1"):
            assert (await api.get(f"/v1/executions?{query}")).status_code == 422
        assert (await api.get("/v1/jobs/a/executions?job=a")).status_code == 422
