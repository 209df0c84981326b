"""Cancelling an execution by its id: in flight, beside the loop, waiting, ended."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from fastapi import FastAPI

from api.connection import Connection
from api.jobs import cancelling
from api.jobs.refs import Found
from infra.database.executions import History
from tests.api.conftest import client_of
from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.api.test_outages import without_database
from tests.stopping import going_on
from workflows.contracts.job import JobView
from workflows.contracts.names import opaque_id

pytestmark = pytest.mark.usefixtures("worker")

FAR = {"cron": "0 9 1 1 *"}


async def busy(api: httpx.AsyncClient, sink: Sink, job: str) -> dict[str, Any]:
    """A job whose target does not answer, and its run."""
    sink.released.clear()
    body = {"id": job, "schedule": FAR, "target": sink.target(f"/slow/{job}")}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    started = await api.post(f"/v1/jobs/{job}/trigger", json={"request": "one"})
    assert started.status_code == 202
    await sink.delivery(f"/slow/{job}")
    document: dict[str, Any] = started.json()
    return document


async def test_a_run_in_flight_is_broken_off(api: httpx.AsyncClient, sink: Sink) -> None:
    run = await busy(api, sink, "broken-off")
    cancelled = await api.post(f"/v1/executions/{run['id']}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    document = cancelled.json()
    assert document["id"] == run["id"]
    if document["outcome"] != "cancelled":
        assert document["outcome"] == "running"
        assert document["in_flight"] == [{"key": run["key"], "state": "stopping"}]
    ended = await eventually(api, f"/v1/executions/{run['id']}", lambda e: e["outcome"] == "cancelled")
    assert ended["reason"] == "asked"
    again = await api.post(f"/v1/executions/{run['id']}/cancel")
    assert (again.status_code, again.json()["outcome"]) == (409, "cancelled")
    assert len(sink.at("/slow/broken-off")) == 1, "no retry follows"


async def test_a_run_beside_the_loop_is_cancelled_and_the_other_goes_on(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    first = await busy(api, sink, "busy-two")
    beside = (await api.post("/v1/jobs/busy-two/trigger", json={"force": True})).json()
    await sink.delivery("/slow/busy-two", 2)
    cancelled = await api.post(f"/v1/executions/{beside['id']}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    await eventually(api, f"/v1/executions/{beside['id']}", lambda e: e["outcome"] == "cancelled")
    assert (await api.get(f"/v1/executions/{first['id']}")).json()["outcome"] == "running"
    sink.released.set()
    await eventually(api, f"/v1/executions/{first['id']}", lambda e: e["outcome"] == "succeeded")
    again = await api.post(f"/v1/executions/{first['id']}/cancel")
    assert (again.status_code, again.json()["outcome"]) == (409, "succeeded")
    assert "succeeded" in again.json()["detail"]


async def test_a_run_beside_a_deleted_job_is_cancelled(api: httpx.AsyncClient, sink: Sink) -> None:
    first = await busy(api, sink, "orphan")
    beside = (await api.post("/v1/jobs/orphan/trigger", json={"force": True})).json()
    await sink.delivery("/slow/orphan", 2)
    deleted = await api.delete("/v1/jobs/orphan")
    assert going_on(deleted) == {first["key"], beside["key"]}
    for run in (first, beside):
        cancelled = await api.post(f"/v1/executions/{run['id']}/cancel")
        assert cancelled.status_code == 200, cancelled.text
        await eventually(api, f"/v1/executions/{run['id']}", lambda e: e["outcome"] == "cancelled")


async def test_without_the_database_a_run_is_cancelled_by_its_id_alone(
    live: FastAPI, api: httpx.AsyncClient, sink: Sink
) -> None:
    run = await busy(api, sink, "no-rows")
    headers = {"idempotency-key": "cancel-no-rows"}
    with without_database(live):
        assert (await api.get(f"/v1/executions/{run['id']}")).json()["outcome"] == "running"
        assert (await api.get(f"/v1/executions/{opaque_id('acme/no-rows:manual-x')}")).status_code == 503
        for _ in range(2):
            cancelled = await api.post(f"/v1/executions/{run['id']}/cancel", headers=headers)
            assert cancelled.status_code == 200, cancelled.text
            assert cancelled.json()["outcome"] in ("cancelled", "running")
    await eventually(api, f"/v1/executions/{run['id']}", lambda e: e["outcome"] == "cancelled")


async def test_what_is_no_execution_of_the_tenant_is_404(
    api: httpx.AsyncClient, sink: Sink, live: FastAPI
) -> None:
    run = await busy(api, sink, "mine")
    async with client_of(live, "other") as other:
        assert (await other.post(f"/v1/executions/{run['id']}/cancel")).status_code == 404
    async with client_of(live, scope="jobs:read") as reader:
        assert (await reader.post(f"/v1/executions/{run['id']}/cancel")).status_code == 403
    for unknown in (
        "nonsense",
        opaque_id("acme/never:manual-x"),
        opaque_id("acme/mine:manual-never"),
        opaque_id("acme/mine:2030-01-01T09:00:00Z"),
    ):
        answer = await api.post(f"/v1/executions/{unknown}/cancel")
        assert answer.status_code == 404, answer.text
    assert (await api.post(f"/v1/executions/{run['id']}/cancel", json={"a": 1})).status_code == 422
    assert (await api.post(f"/v1/executions/{run['id']}/cancel")).status_code == 200


async def test_a_run_that_ends_at_this_moment_is_no_unknown_one(
    api: httpx.AsyncClient, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job does not know it any more, and its row is still on its way."""
    run = await busy(api, sink, "just-now")
    look = cancelling.any_view_of

    async def look_before_it_ends(connection: Connection, found: Found) -> JobView | None:
        view = await look(connection, found)
        sink.released.set()
        await eventually(api, f"/v1/executions/{run['id']}", lambda e: e["outcome"] == "succeeded")
        await eventually(api, "/v1/jobs/just-now", lambda job: job["last_run"] is not None)  # it has heard
        monkeypatch.setattr(History, "get_execution", AsyncMock(return_value=None))
        return view

    monkeypatch.setattr(cancelling, "any_view_of", look_before_it_ends)
    refused = await api.post(f"/v1/executions/{run['id']}/cancel")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:execution-ended")
