"""A job whose workflow an operator terminated: said as it is, and deleted so that its id is free."""

from __future__ import annotations

from collections.abc import Awaitable

import httpx
import pytest
from temporalio.client import Client

from tests.api.eventually import eventually
from tests.api.sink import Sink
from workflows.contracts.names import job_workflow_id

pytestmark = pytest.mark.usefixtures("worker")


async def _create(api: httpx.AsyncClient, sink: Sink, job: str) -> httpx.Response:
    schedule = {"cron": "0 9 1 1 *"}
    return await api.post(
        "/v1/jobs", json={"id": job, "schedule": schedule, "target": sink.target(f"/{job}")}
    )


def _changes(api: httpx.AsyncClient, sink: Sink, job: str) -> list[Awaitable[httpx.Response]]:
    url, year = f"/v1/jobs/{job}", {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}
    return [
        api.put(url, json={"schedule": {"cron": "0 9 1 1 *"}, "target": sink.target(f"/{job}")}),
        api.patch(url, json={"timeout": 7}),
        *(api.post(f"{url}/{name}", json={}) for name in ("trigger", "pause", "resume")),
        api.post(f"{url}/skip", json={"scheduled_time": "2031-01-01T09:00:00Z"}),
        api.post(f"{url}/backfill", json=year),
        api.get(f"{url}/backfills"),
        api.delete(f"{url}/backfills/b1"),
    ]


async def test_it_is_stale_and_once_deleted_its_id_is_free(
    api: httpx.AsyncClient, live_temporal: Client, sink: Sink
) -> None:
    job = "terminated"
    assert (await _create(api, sink, job)).status_code == 201
    await live_temporal.get_workflow_handle(job_workflow_id("acme", job)).terminate("an operator")
    await eventually(api, f"/v1/jobs/{job}", lambda found: found["stale"])
    for refused in [await call for call in _changes(api, sink, job)]:
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:job-lost"), (
            refused.text
        )
        assert "delete it, then create it again" in refused.json()["detail"]
    refused = await _create(api, sink, job)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:id-in-use")
    assert (await api.delete(f"/v1/jobs/{job}", headers={"If-Match": '"7"'})).status_code == 412
    deleted = await api.delete(f"/v1/jobs/{job}")
    assert (deleted.status_code, deleted.json()) == (200, {"id": job, "in_flight": []})
    assert (await api.get(f"/v1/jobs/{job}")).status_code == 404
    assert (await api.delete(f"/v1/jobs/{job}")).status_code == 404
    assert (await _create(api, sink, job)).status_code == 201
    run = (await api.post(f"/v1/jobs/{job}/trigger", json={})).json()
    assert run["key"].startswith(f"acme/{job}~2:")
    await eventually(api, f"/v1/executions/{run['id']}", lambda found: found["outcome"] == "succeeded")


async def test_one_that_is_alive_is_deleted_by_itself_alone(
    api: httpx.AsyncClient, live_temporal: Client, sink: Sink
) -> None:
    """Its workflow has the last word: deleted twice is not found."""
    assert (await _create(api, sink, "alive-still")).status_code == 201
    assert (await api.delete("/v1/jobs/alive-still")).status_code == 200
    assert (await api.delete("/v1/jobs/alive-still")).status_code == 404
