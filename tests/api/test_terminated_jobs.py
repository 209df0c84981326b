"""A job whose workflow an operator terminated: said as it is, and deleted so that its id is free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from tests.api.eventually import eventually
from tests.api.sink import Sink
from workflows.contracts.names import job_workflow_id

pytestmark = pytest.mark.usefixtures("worker")


async def _create(api: httpx.AsyncClient, sink: Sink, job: str, **more: Any) -> httpx.Response:
    schedule = {"cron": "0 9 1 1 *"}
    return await api.post(
        "/v1/jobs", json={"id": job, "schedule": schedule, "target": sink.target(f"/{job}"), **more}
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


async def _terminate(temporal: Client, job: str) -> None:
    await temporal.get_workflow_handle(job_workflow_id("acme", job)).terminate("an operator")


async def _delete(temporal: Client, job: str) -> None:
    """As if it had been terminated longer ago than the server keeps histories."""
    workflow_id = job_workflow_id("acme", job)
    await temporal.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=temporal.namespace, workflow_execution=WorkflowExecution(workflow_id=workflow_id)
        )
    )
    async with asyncio.timeout(60):
        while True:
            try:
                await temporal.get_workflow_handle(workflow_id).describe()
            except RPCError:
                return
            await asyncio.sleep(0.1)


End = Callable[[Client, str], Awaitable[None]]
ways = pytest.mark.parametrize("end", [_terminate, _delete], ids=["terminated", "deleted"])


def _is_lost(answer: httpx.Response) -> bool:
    lost = "urn:carillon:problem:job-lost"
    return answer.status_code == 409 and answer.json()["type"] == lost


@ways
async def test_it_is_stale_and_once_deleted_its_id_is_free(
    api: httpx.AsyncClient, live_temporal: Client, sink: Sink, end: End
) -> None:
    job = f"ended-{end.__name__.strip('_')}"
    assert (await _create(api, sink, job)).status_code == 201
    await end(live_temporal, job)
    await eventually(api, f"/v1/jobs/{job}", lambda found: found["stale"])
    for refused in [await call for call in _changes(api, sink, job)]:
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:job-lost"), (
            refused.text
        )
        assert "delete it, then create it again" in refused.json()["detail"]
    present = await api.put(
        f"/v1/jobs/{job}",
        json={"schedule": {"cron": "0 9 1 1 *"}, "target": sink.target(f"/{job}")},
        headers={"If-None-Match": "*"},
    )
    assert present.status_code == 412, present.text
    refused = await _create(api, sink, job)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:id-in-use")
    assert (await api.delete(f"/v1/jobs/{job}", headers={"If-Match": '"7"'})).status_code == 412
    deleted = await api.delete(f"/v1/jobs/{job}", headers={"If-Match": '"1", "7"'})
    assert (deleted.status_code, deleted.json()) == (200, {"id": job, "in_flight": []})
    assert (await api.get(f"/v1/jobs/{job}")).status_code == 404
    assert (await api.delete(f"/v1/jobs/{job}")).status_code == 404
    assert (await _create(api, sink, job)).status_code == 201
    run = (await api.post(f"/v1/jobs/{job}/trigger", json={})).json()
    assert run["key"].startswith(f"acme/{job}~2:")
    await eventually(api, f"/v1/executions/{run['id']}", lambda found: found["outcome"] == "succeeded")


@ways
async def test_what_ran_when_it_ended_is_not_said_to_end_by_itself(
    api: httpx.AsyncClient, live_temporal: Client, sink: Sink, end: End
) -> None:
    """Its row says that it runs, and nobody will write another one."""
    job = f"ran-{end.__name__.strip('_')}"
    assert (await _create(api, sink, job, retry={"initial_interval": "PT5M"})).status_code == 201
    sink.failing.add(f"/{job}")
    run = (await api.post(f"/v1/jobs/{job}/trigger", json={})).json()
    await eventually(api, f"/v1/executions/{run['id']}", lambda found: found["outcome"] == "retrying")
    await end(live_temporal, job)
    for call, body in (("rerun", {"target_body": True}), ("cancel", {})):
        refused = await api.post(f"/v1/executions/{run['id']}/{call}", json=body)
        assert _is_lost(refused), (call, refused.text)


@ways
async def test_a_bulk_says_what_became_of_it(
    api: httpx.AsyncClient, live_temporal: Client, sink: Sink, end: End
) -> None:
    job = f"bulk-{end.__name__.strip('_')}"
    assert (await _create(api, sink, job)).status_code == 201
    await end(live_temporal, job)

    async def bulk(action: str) -> Any:
        begun = await api.post("/v1/jobs/bulk", json={"filter": {"q": job}, "action": action})
        return await eventually(
            api, begun.headers["location"], lambda found: found["state"] == "completed", within=60
        )

    for action in ("pause", "trigger"):
        told = await bulk(action)
        assert (told["failed"], [one["type"] for one in told["problems"]]) == (
            1,
            ["urn:carillon:problem:job-lost"],
        )
    told = await bulk("delete")
    assert (told["done"], told["failed"]) == (1, 0)
    assert (await api.get(f"/v1/jobs/{job}")).status_code == 404
    assert (await api.get("/v1/jobs", params={"q": job})).json()["items"] == []
    assert (await _create(api, sink, job)).status_code == 201


async def test_one_that_is_alive_is_deleted_by_itself_alone(
    api: httpx.AsyncClient, live_temporal: Client, sink: Sink
) -> None:
    """Its workflow has the last word: deleted twice is not found."""
    assert (await _create(api, sink, "alive-still")).status_code == 201
    assert (await api.delete("/v1/jobs/alive-still")).status_code == 200
    assert (await api.delete("/v1/jobs/alive-still")).status_code == 404
