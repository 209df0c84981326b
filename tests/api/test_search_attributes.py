"""What an operator finds in the Temporal UI by the search attributes of a tenant and a job."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI
from temporalio.client import Client

from api.jobs.refs import _from_visibility
from tests.api.conftest import client_of
from tests.api.eventually import eventually
from tests.api.sink import Sink
from workflows.contracts.names import SEARCH_JOB, SEARCH_REF, SEARCH_TENANT

pytestmark = pytest.mark.usefixtures("worker")


async def _found(client: Client, query: str) -> dict[str, dict[str, list[object]]]:
    """The search attributes of ours, by the type of the workflow."""
    return {
        found.workflow_type: {
            name: list(values)
            for name, values in found.search_attributes.items()
            if name in (SEARCH_TENANT, SEARCH_JOB, SEARCH_REF)
        }
        async for found in client.list_workflows(query)
    }


async def test_all_workflows_of_a_tenant_are_found_and_those_of_a_job(
    live: FastAPI, live_temporal: Client, sink: Sink
) -> None:
    """A job with a run beside it, a dead letter, an incident and a group, and a bulk."""
    tenant, job, path = "searched", "seen", "/slow/seen"
    sink.failing.add(path)
    sink.released.clear()
    async with client_of(live, tenant) as api:
        made = await api.post(
            "/v1/jobs",
            json={
                "id": job,
                "schedule": {"cron": "0 9 1 1 *"},
                "target": sink.target(path),
                "retry": {"max_attempts": 1},
                "concurrency": {"group": "shared"},
            },
        )
        assert made.status_code == 201
        runs = []
        for count, body in enumerate(({}, {"force": True}), start=1):
            runs.append((await api.post(f"/v1/jobs/{job}/trigger", json=body)).json()["id"])
            await sink.delivery(path, count)
        sink.released.set()
        await eventually(api, "/v1/dead-letters", lambda p: all(run in str(p) for run in runs))
        asked = {"filter": {"status": "paused"}, "action": "pause", "dry_run": True}
        assert (await api.post("/v1/jobs/bulk", json=asked)).status_code == 202
    whole, of_tenant = (
        {SEARCH_TENANT: [tenant], SEARCH_JOB: [job], SEARCH_REF: [job]},
        {SEARCH_TENANT: [tenant]},
    )
    expected = {"job": whole, "run": whole, "dead_letter": whole, "incident": whole}
    expected |= {"group": of_tenant, "bulks": of_tenant, "bulk": of_tenant}
    found: dict[str, dict[str, list[object]]] = {}
    for _ in range(200):  # what is started is found a little later
        found = await _found(live_temporal, f"{SEARCH_TENANT} = '{tenant}'")
        if found == expected:
            break
        await asyncio.sleep(0.1)
    assert found == expected
    assert (await _found(live_temporal, f"{SEARCH_JOB} = '{job}'")).keys() == {
        "job", "run", "dead_letter", "incident",
    }  # fmt: skip
    assert await _from_visibility(live_temporal, tenant, job) == job
