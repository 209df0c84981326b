"""Concurrency groups over HTTP: who is in one, who runs, who waits, and how many may."""

from __future__ import annotations

from typing import Any, NoReturn

import httpx
import pytest
from fastapi import FastAPI

from infra.database.errors import DatabaseUnavailable
from tests.api.conftest import client_of
from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.api.test_outages import without_database
from tests.api.test_problems import assert_problem
from workflows.contracts.names import group_workflow_id

pytestmark = pytest.mark.usefixtures("worker")


async def create(api: httpx.AsyncClient, sink: Sink, job: str, group: str, path: str) -> None:
    made = await api.post(
        "/v1/jobs",
        json={
            "id": job,
            "schedule": {"every": "PT1H"},
            "target": sink.target(path),
            "concurrency": {"group": group},
        },
    )
    assert made.status_code == 201, made.text
    assert made.json()["concurrency"]["group"] == group


async def read(api: httpx.AsyncClient, name: str) -> dict[str, Any]:
    answer = await api.get(f"/v1/groups/{name}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_group_shows_its_jobs_who_has_a_place_and_who_waits(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    """And ends with its last job; before that it cannot be deleted."""
    sink.released.clear()
    for job in ("one", "two"):
        await create(api, sink, job, "warehouse", f"/slow/{job}")
    found = await read(api, "warehouse")
    assert (found["limit"], found["members"], found["held"], found["stale"]) == (1, ["one", "two"], 0, False)
    first = (await api.post("/v1/jobs/one/trigger")).json()
    await sink.delivery("/slow/one")
    second = (await api.post("/v1/jobs/two/trigger")).json()
    found = await eventually(api, "/v1/groups/warehouse", lambda group: group["queued"] == 1)
    assert [(one["job"], one["key"], one["id"]) for one in found["holders"]] == [
        ("one", first["key"], first["id"])
    ]
    assert [(one["job"], one["key"]) for one in found["waiting"]] == [("two", second["key"])]
    waits = await api.get(f"/v1/executions/{second['id']}")
    assert waits.json()["outcome"] == "queued"
    refused = await api.delete("/v1/groups/warehouse")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:group-in-use")
    raised = await api.put("/v1/groups/warehouse", json={"limit": 2})
    assert (raised.status_code, raised.json()["limit"], raised.json()["held"]) == (200, 2, 2)
    await sink.delivery("/slow/two")
    await api.delete("/v1/jobs/one")
    await api.delete("/v1/jobs/two")
    refused = await api.delete("/v1/groups/warehouse")
    assert refused.status_code == 409, "deleted jobs finish their runs, which have places still"
    assert refused.json()["active"] in (first["key"], second["key"])
    sink.released.set()
    await eventually(api, "/v1/groups/warehouse", lambda group: group["held"] == 0)
    assert (await api.delete("/v1/groups/warehouse")).status_code == 204
    assert (await api.get("/v1/groups/warehouse")).status_code == 404
    assert (await api.delete("/v1/groups/warehouse")).status_code == 404
    audit = (await api.get("/v1/audit")).json()["items"]
    assert {"limit group warehouse", "delete group warehouse"} <= {entry["operation"] for entry in audit}


async def test_a_group_is_made_by_a_limit_too_and_listed(
    api: httpx.AsyncClient, live: FastAPI, sink: Sink
) -> None:
    """Another tenant has groups of its own, whatever their names."""
    await create(api, sink, "grouped", "b-by-job", "/grouped")
    for name, limit in (("a-by-limit", 3), ("c-by-limit", 2)):
        put = await api.put(f"/v1/groups/{name}", json={"limit": limit})
        assert (put.status_code, put.json()["limit"], put.json()["members"]) == (200, limit, [])
    page = (await api.get("/v1/groups?limit=2")).json()
    assert page["items"] == [
        {"name": "a-by-limit", "limit": 3, "member_count": 0},
        {"name": "b-by-job", "limit": 1, "member_count": 1},
    ]
    rest = (await api.get("/v1/groups", params={"cursor": page["next_cursor"]})).json()
    assert ([one["name"] for one in rest["items"]], rest["next_cursor"]) == (["c-by-limit"], None)
    assert [job["id"] for job in (await api.get("/v1/jobs?group=b-by-job")).json()["items"]] == ["grouped"]
    async with client_of(live, "others") as others:
        assert (await others.get("/v1/groups/a-by-limit")).status_code == 404
        assert (await others.get("/v1/groups")).json()["items"] == []
    await api.delete("/v1/jobs/grouped")
    for name in ("a-by-limit", "c-by-limit"):
        assert (await api.delete(f"/v1/groups/{name}")).status_code == 204
    assert (await api.get("/v1/groups")).json()["items"] == []


async def test_a_terminated_group_keeps_its_limit_until_it_is_deleted(
    api: httpx.AsyncClient, live: FastAPI, sink: Sink
) -> None:
    """It comes back with the places it had, too, when its limit is set; a deletion forgets both."""
    client = await live.state.carillon.temporal.client()
    group = client.get_workflow_handle(group_workflow_id("acme", "cut-off"))
    sink.released.clear()
    await create(api, sink, "holds-on", "cut-off", "/slow/holds-on")
    assert (await api.put("/v1/groups/cut-off", json={"limit": 3})).status_code == 200
    assert (await api.post("/v1/jobs/holds-on/trigger")).status_code == 202
    await sink.delivery("/slow/holds-on")
    await group.terminate("an operator")
    assert (await read(api, "cut-off"))["limit"] == 3
    put = await api.put("/v1/groups/cut-off", json={"limit": 4})
    assert (put.json()["limit"], put.json()["held"]) == (4, 1)
    await group.terminate("an operator")
    await api.delete("/v1/jobs/holds-on")
    refused = await api.delete("/v1/groups/cut-off")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:group-in-use")
    sink.released.set()
    await eventually(api, "/v1/groups/cut-off", lambda found: found["held"] == 0)
    await group.terminate("an operator")
    assert (await api.delete("/v1/groups/cut-off")).status_code == 204
    await create(api, sink, "begins-anew", "cut-off", "/begins-anew")
    assert (await api.post("/v1/jobs/begins-anew/trigger")).status_code == 202
    await sink.delivery("/begins-anew")
    assert (await read(api, "cut-off"))["limit"] == 1
    await api.delete("/v1/jobs/begins-anew")


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("g", {"limit": 0}, 422),
        ("g", {"limit": 501}, 422),
        ("g", {}, 422),
        ("g", {"limit": 1, "places": 2}, 422),
        ("UPPER", {"limit": 1}, 422),
    ],
)
async def test_a_bad_limit_or_name_is_refused(
    api: httpx.AsyncClient, name: str, body: dict[str, Any], status: int
) -> None:
    assert (await api.put(f"/v1/groups/{name}", json=body)).status_code == status


async def test_a_tenant_has_a_bounded_number_of_groups(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those it has can be changed."""
    monkeypatch.setattr("api.groups.GROUPS_MAX", 1)
    assert (await api.put("/v1/groups/only", json={"limit": 1})).status_code == 200
    refused = await api.put("/v1/groups/another", json={"limit": 1})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:carillon:problem:quota-exceeded")
    assert (await api.put("/v1/groups/only", json={"limit": 2})).status_code == 200
    assert (await api.delete("/v1/groups/only")).status_code == 204


async def test_the_name_in_a_definition_has_the_form_of_an_id(api: httpx.AsyncClient, sink: Sink) -> None:
    body = {"schedule": {"every": "PT1H"}, "target": sink.target("/x"), "concurrency": {"group": "No Name"}}
    refused = await api.post("/v1/jobs", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/concurrency/group")


async def test_without_the_database_a_group_is_not_read_and_its_jobs_run(
    api: httpx.AsyncClient, live: FastAPI, sink: Sink
) -> None:
    await create(api, sink, "runs-on", "no-database", "/runs-on")
    with without_database(live):
        for path in ("/v1/groups", "/v1/groups/no-database"):
            assert (await api.get(path)).status_code == 503
        assert (await api.post("/v1/jobs/runs-on/trigger")).status_code == 202
        await sink.delivery("/runs-on")
    await api.delete("/v1/jobs/runs-on")


async def test_a_change_that_no_list_can_show_yet_says_so(
    api: httpx.AsyncClient, live: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has obeyed by then; the same call again settles the rest."""

    async def gone(*_: object) -> NoReturn:
        raise DatabaseUnavailable("the database is away")

    index = live.state.carillon.groups.index
    assert (await api.put("/v1/groups/unlisted", json={"limit": 2})).status_code == 200
    with monkeypatch.context() as away:
        away.setattr(index, "put", gone)
        half = assert_problem(await api.put("/v1/groups/unlisted", json={"limit": 3}), 503)
        assert half["detail"].startswith("The group has its new limit, but")
    assert (await api.get("/v1/groups/unlisted")).json()["limit"] == 3
    assert (await api.put("/v1/groups/unlisted", json={"limit": 3})).status_code == 200
    with monkeypatch.context() as away:
        away.setattr(index, "delete", gone)
        half = assert_problem(await api.delete("/v1/groups/unlisted"), 503)
        assert half["detail"].startswith("The group has ended, but")
    assert (await api.delete("/v1/groups/unlisted")).status_code == 204
    assert (await api.get("/v1/groups/unlisted")).status_code == 404
