"""Concurrency groups while no worker is there: lists answer, changes say in time that they cannot."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from api import groups as api_groups
from infra.settings import Settings
from tests.api.conftest import working
from tests.api.sink import Sink
from tests.stopwatch import Stopwatch
from workflows.contracts import names

pytestmark = pytest.mark.usefixtures("undisturbed")


async def unread(handle: WorkflowHandle[object, object]) -> None:
    """Until the server no longer waits for a worker to answer for a workflow: none has come for too long."""
    async with asyncio.timeout(120):
        while True:
            try:
                await handle.query(names.QUERY_STATE, rpc_timeout=timedelta(seconds=2))
            except RPCError as error:
                if error.status is RPCStatusCode.FAILED_PRECONDITION:
                    return
            await asyncio.sleep(1)


async def test_a_group_is_listed_and_shown_as_stale(
    api: httpx.AsyncClient, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {
        "id": "waits",
        "schedule": {"every": "PT1H"},
        "target": sink.target("/waits"),
        "concurrency": {"group": "quiet"},
    }
    assert (await api.post("/v1/jobs", json=job)).status_code == 201
    assert api_groups.ANSWER_WITHIN_S + 1.5 < 10, "with the look into the index before it"
    monkeypatch.setattr(api_groups, "ANSWER_WITHIN_S", 1.0)
    with Stopwatch() as changing:
        put = await api.put("/v1/groups/quiet", json={"limit": 2})
    assert (put.status_code, put.json()["type"]) == (503, "urn:carillon:problem:no-answer")
    assert changing.seconds < 6
    listed = [one for one in (await api.get("/v1/groups")).json()["items"] if one["name"] == "quiet"]
    assert listed == [{"name": "quiet", "limit": 1, "member_count": 1}]
    found = (await api.get("/v1/groups/quiet")).json()
    assert (found["stale"], found["limit"], found["holders"], found["members"]) == (True, 1, None, ["waits"])


async def test_a_group_that_was_ended_by_force_is_left_alone_until_a_worker_can_tell_what_it_had(
    api: httpx.AsyncClient, live: FastAPI, live_settings: Settings
) -> None:
    """Begun anew meanwhile, it would have the places it began with, and give away those that are held."""
    client = await live.state.carillon.temporal.client()
    handle = client.get_workflow_handle(names.group_workflow_id("acme", "unread"))
    async with working(live_settings):
        assert (await api.put("/v1/groups/unread", json={"limit": 3})).status_code == 200
        assert (await api.put("/v1/groups/unread", json={"limit": 2})).status_code == 200
    await handle.terminate("an operator")
    await unread(handle)
    put = await api.put("/v1/groups/unread", json={"limit": 5})
    deleted = await api.delete("/v1/groups/unread")
    for answer in (put, deleted):
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:carillon:problem:no-answer")
        assert "nothing was done" in answer.json()["detail"]
    assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED
    [listed] = [one for one in (await api.get("/v1/groups")).json()["items"] if one["name"] == "unread"]
    assert listed["limit"] == 2
    async with working(live_settings):
        assert (await api.delete("/v1/groups/unread")).status_code == 204
