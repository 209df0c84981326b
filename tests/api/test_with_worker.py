"""A job's whole life over HTTP: the real server, the real workflow, a real receiver."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.api.conftest import client_of
from tests.api.sink import Sink

pytestmark = pytest.mark.usefixtures("worker")

FAR = {"cron": "0 9 1 1 *"}


async def create(api: httpx.AsyncClient, sink: Sink, job: str, **more: Any) -> dict[str, Any]:
    body = {"id": job, "schedule": FAR, "target": sink.target(f"/{job}"), **more}
    made = await api.post("/v1/jobs", json=body)
    assert made.status_code == 201, made.text
    document: dict[str, Any] = made.json()
    return document


async def eventually(api: httpx.AsyncClient, path: str, wanted: Any) -> dict[str, Any]:
    """The first answer that satisfies ``wanted``."""
    async with asyncio.timeout(20):
        while True:
            answer = await api.get(path)
            if answer.status_code == 200 and wanted(answer.json()):
                document: dict[str, Any] = answer.json()
                return document
            await asyncio.sleep(0.05)


async def test_a_job_runs_and_its_execution_is_read_back(api: httpx.AsyncClient, sink: Sink) -> None:
    await create(api, sink, "runs", schedule={"in": "PT1S"}, labels={"set": "ran"})
    delivery = await sink.delivery("/runs")
    key = delivery.headers["idempotency-key"]
    page = await eventually(
        api, "/v1/jobs/runs/executions", lambda p: p["items"] and p["items"][0]["outcome"] == "succeeded"
    )
    [execution] = page["items"]
    assert execution["key"] == key
    assert execution["job"] == "runs"
    assert [attempt["outcome"] for attempt in execution["attempts"]] == ["succeeded"]
    assert (await api.get(f"/v1/executions/{execution['id']}")).json() == execution
    assert execution in (await api.get("/v1/executions?trigger=schedule&outcome=succeeded")).json()["items"]
    assert (await api.get("/v1/executions?until=2020-01-01T00:00:00Z")).json()["items"] == []
    job = await eventually(api, "/v1/jobs/runs", lambda j: j["last_run"] and j["status"] == "completed")
    assert job["last_run"]["id"] == execution["id"]
    assert job["stats"]["succeeded"] == 1
    assert job["next_runs"] == []
    listed = await eventually(
        api, "/v1/jobs?label=set=ran&outcome=succeeded", lambda p: p["items"] and p["items"][0]["last_run"]
    )
    assert listed["items"][0]["stats"]["runs"] == 1


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
async def test_an_edit_to_a_one_off_that_has_just_passed_runs_it_at_once(
    api: httpx.AsyncClient, sink: Sink, method: str
) -> None:
    """As its creation would: it is accepted, so it runs."""
    job = f"just-passed-{method.lower()}"
    made = await create(api, sink, job)
    instant = (datetime.now(UTC) - timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"schedule": {"at": instant}} | ({"target": made["target"]} if method == "PUT" else {})
    answer = await api.request(method, f"/v1/jobs/{job}", json=body)
    assert answer.status_code == 200, answer.text
    delivery = await sink.delivery(f"/{job}")
    assert delivery.headers["carillon-scheduled-time"] == instant
    ended = await eventually(api, f"/v1/jobs/{job}", lambda j: j["status"] == "completed" and j["last_run"])
    assert (ended["stats"]["runs"], ended["stats"]["missed"]) == (1, 0)


async def test_another_tenant_sees_no_execution(api: httpx.AsyncClient, sink: Sink, live: FastAPI) -> None:
    await create(api, sink, "private", schedule={"in": 0})
    await sink.delivery("/private")
    page = await eventually(api, "/v1/jobs/private/executions", lambda p: p["items"])
    async with client_of(live, "other") as other:
        assert (await other.get(f"/v1/executions/{page['items'][0]['id']}")).status_code == 404


async def test_a_patch_replaces_schedule_and_target_whole_and_counts_revisions(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    made = await create(api, sink, "patched", target=sink.target("/patched", body={"a": 1}), priority=4)
    assert made["revision"] == 1
    patched = await api.patch(
        "/v1/jobs/patched",
        json={"schedule": {"every": "PT5M"}, "target": sink.target("/patched")},
        headers={"if-match": '"1"', "content-type": "application/merge-patch+json"},
    )
    assert patched.status_code == 200, patched.text
    job = patched.json()
    assert patched.headers["etag"] == '"2"'
    assert set(job["schedule"]) == {"every", "anchor", "timezone", "gap", "fold"}
    assert job["target"]["body"] is None
    assert job["priority"] == 4
    assert (await api.get("/v1/jobs/patched")).json()["revision"] == 2
    [listed] = (await api.get("/v1/jobs?q=patched")).json()["items"]
    assert listed["schedule"] == job["schedule"]
    stale = await api.patch("/v1/jobs/patched", json={"priority": 2}, headers={"if-match": '"1"'})
    assert stale.status_code == 412
    assert "revision 2" in stale.json()["detail"]


async def test_an_edit_that_leaves_the_schedule_alone_keeps_what_was_resolved(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    made = await create(api, sink, "kept", schedule={"every": "PT1H"})
    patched = await api.patch("/v1/jobs/kept", json={"priority": 1})
    assert patched.json()["schedule"] == made["schedule"]
    put = await api.put(
        "/v1/jobs/kept", json={"schedule": {"every": "PT1H"}, "target": sink.target("/kept"), "priority": 2}
    )
    assert put.status_code == 200, put.text
    assert put.json()["schedule"] == made["schedule"]
    assert put.json()["revision"] == 3


async def test_a_patch_that_changes_nothing_gives_no_revision(api: httpx.AsyncClient, sink: Sink) -> None:
    made = await create(api, sink, "same")
    answer = await api.patch("/v1/jobs/same", json={"priority": made["priority"], "paused": True})
    assert answer.status_code == 200
    assert answer.json()["revision"] == 1
    assert answer.json()["paused"] is False


async def test_a_completed_one_off_can_still_be_edited(api: httpx.AsyncClient, sink: Sink) -> None:
    """Its time is past, and nobody asked to change it."""
    await create(api, sink, "done", schedule={"in": 0})
    job = await eventually(api, "/v1/jobs/done", lambda j: j["status"] == "completed")
    answer = await api.patch("/v1/jobs/done", json={"description": "it ran"})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["next_runs"]) == ("completed", [])
    document = {**job, "description": "it ran, indeed"}
    put = await api.put("/v1/jobs/done", json=document)
    assert put.status_code == 200, put.text
    assert put.json()["status"] == "completed"
    assert len(sink.at("/done")) == 1


async def test_the_answer_of_an_edit_says_whether_anything_is_left_to_do(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    made = await create(api, sink, "bounded")
    over = await api.patch("/v1/jobs/bounded", json={"ends_at": made["created_at"]})
    assert over.status_code == 200, over.text
    assert over.json()["status"] == "completed"
    again = await api.patch("/v1/jobs/bounded", json={"ends_at": None})
    assert again.json()["status"] == "active"


async def test_put_creates_replaces_and_heeds_preconditions(api: httpx.AsyncClient, sink: Sink) -> None:
    body = {"schedule": FAR, "target": sink.target("/put")}
    assert (await api.put("/v1/jobs/put", json=body, headers={"if-match": '"1"'})).status_code == 412
    made = await api.put("/v1/jobs/put", json=body, headers={"if-none-match": "*"})
    assert (made.status_code, made.headers["location"]) == (201, "/v1/jobs/put")
    assert (await api.put("/v1/jobs/put", json=body, headers={"if-none-match": "*"})).status_code == 412
    replaced = await api.put("/v1/jobs/put", json={**body, "priority": 1}, headers={"if-match": '"1"'})
    assert (replaced.status_code, replaced.json()["revision"]) == (200, 2)
    assert (
        await api.put("/v1/jobs/put", json={**body, "priority": 2}, headers={"if-match": '"1"'})
    ).status_code == 412
    assert (await api.put("/v1/jobs/put", json={**body, "id": "other"})).status_code == 422
    assert (await api.put("/v1/jobs/put", json={**body, "priority": 5}, headers={"if-match": "*"})).json()[
        "revision"
    ] == 3


async def test_a_deleted_job_is_gone_and_its_id_free_for_a_new_generation(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    await create(api, sink, "again")
    await api.patch("/v1/jobs/again", json={"priority": 1})
    assert (await api.delete("/v1/jobs/again", headers={"if-match": '"1"'})).status_code == 412
    deleted = await api.delete("/v1/jobs/again", headers={"if-match": '"2"'})
    assert (deleted.status_code, deleted.json()) == (200, {"id": "again", "in_flight": []})
    for call in (api.get("/v1/jobs/again"), api.delete("/v1/jobs/again"), api.post("/v1/jobs/again/pause")):
        assert (await call).status_code == 404
    made = await create(api, sink, "again", schedule={"in": 0})
    assert made["revision"] == 3, "revisions go on across generations"
    delivery = await sink.delivery("/again")
    assert delivery.headers["idempotency-key"].startswith("acme/again~2:")
    assert delivery.headers["carillon-job"] == "again"


async def test_a_replay_of_a_creation_whose_job_was_deleted_is_410(
    api: httpx.AsyncClient, sink: Sink
) -> None:
    body = {"id": "gone", "schedule": FAR, "target": sink.target("/gone")}
    headers = {"idempotency-key": "gone"}
    assert (await api.post("/v1/jobs", json=body, headers=headers)).status_code == 201
    assert (await api.delete("/v1/jobs/gone")).status_code == 200
    assert (await api.post("/v1/jobs", json=body, headers=headers)).status_code == 410


async def test_pause_and_resume(api: httpx.AsyncClient, sink: Sink) -> None:
    made = await create(api, sink, "held", schedule={"every": "PT1H"})
    until = datetime.fromisoformat(made["schedule"]["anchor"]) + timedelta(hours=3)
    paused = await api.post("/v1/jobs/held/pause", json={"reason": "upgrade", "until": until.isoformat()})
    assert paused.status_code == 200, paused.text
    job = paused.json()
    assert (job["status"], job["paused"], job["in_flight"]) == ("paused", True, [])
    assert (job["pause"]["reason"], job["pause"]["by"]) == ("upgrade", "tester")
    assert job["revision"] == 1, "a pause is no change of the definition"
    assert datetime.fromisoformat(job["next_runs"][0]["scheduled_time"]) == until, "the pause is over then"
    assert [j["id"] for j in (await api.get("/v1/jobs?status=paused&q=held")).json()["items"]] == ["held"]
    patched = await api.patch("/v1/jobs/held", json={"priority": 1})
    assert patched.json()["status"] == "paused", "an edit leaves a pause alone"
    resumed = await api.post("/v1/jobs/held/resume")
    assert (resumed.status_code, resumed.json()["status"]) == (200, "active")
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert (await api.post("/v1/jobs/held/pause", json={"until": past})).status_code == 422


async def test_a_job_can_be_created_paused(api: httpx.AsyncClient, sink: Sink) -> None:
    made = await create(api, sink, "born-paused", schedule={"every": "PT1S"}, paused=True)
    assert (made["status"], made["paused"], made["next_runs"]) == ("paused", True, [])
    read = (await api.get("/v1/jobs/born-paused")).json()
    assert (read["status"], read["stale"]) == ("paused", False)
    assert sink.at("/born-paused") == []


async def test_a_trigger_runs_once_per_request_with_its_own_body(api: httpx.AsyncClient, sink: Sink) -> None:
    await create(api, sink, "manual", paused=True)
    body = {"request": "r-1", "body": {"only": "this"}}
    first = await api.post("/v1/jobs/manual/trigger", json=body)
    assert first.status_code == 202, first.text
    execution = first.json()
    assert (execution["key"], execution["trigger"]) == ("acme/manual:manual-r-1", "manual")
    assert first.headers["location"] == f"/v1/executions/{execution['id']}"
    delivery = await sink.delivery("/manual")
    assert delivery.body == b'{"only":"this"}'
    assert delivery.headers["carillon-trigger"] == "manual"
    await eventually(api, f"/v1/executions/{execution['id']}", lambda e: e["outcome"] == "succeeded")
    again = await api.post("/v1/jobs/manual/trigger", json=body)
    assert (again.status_code, again.json()["id"]) == (202, execution["id"])
    keyed = [
        (await api.post("/v1/jobs/manual/trigger", headers={"idempotency-key": "once"})).json()["key"]
        for _ in range(2)
    ]
    assert keyed[0] == keyed[1]
    other = await api.post("/v1/jobs/manual/trigger", json={"body": 1}, headers={"idempotency-key": "once"})
    assert other.status_code == 422
    await sink.delivery("/manual", 2)
    assert len(sink.at("/manual")) == 2


async def test_a_completed_job_can_be_triggered(api: httpx.AsyncClient, sink: Sink) -> None:
    await create(api, sink, "finished", schedule={"in": 0}, target=sink.target("/finished", body={"a": 1}))
    await eventually(api, "/v1/jobs/finished", lambda j: j["status"] == "completed")
    for body in ({"request": "a b"}, {"request": "x" * 65}, {"reqest": "x"}):
        assert (await api.post("/v1/jobs/finished/trigger", json=body)).status_code == 422
    assert (await api.post("/v1/jobs/finished/trigger", json={"body": None})).status_code == 202
    assert (await sink.delivery("/finished", 1)).body == b'{"a":1}'
    assert (await sink.delivery("/finished", 2)).body == b"", "null sends no body"


async def test_a_trigger_beside_an_active_run_is_409_naming_it(api: httpx.AsyncClient, sink: Sink) -> None:
    sink.released.clear()
    await create(api, sink, "busy", target=sink.target("/slow/busy"))
    first = (await api.post("/v1/jobs/busy/trigger")).json()
    await sink.delivery("/slow/busy")
    refused = await api.post("/v1/jobs/busy/trigger")
    assert refused.status_code == 409
    assert first["key"] in refused.json()["detail"]
    alive = (await api.get("/v1/jobs/busy/executions")).json()["items"]
    assert [(item["key"], item["outcome"]) for item in alive] == [(first["key"], "running")]
    forced = await api.post("/v1/jobs/busy/trigger", json={"force": True, "request": "too", "body": 7})
    assert forced.status_code == 202, forced.text
    assert (await sink.delivery("/slow/busy", 2)).body == b"7"
    again = await api.post("/v1/jobs/busy/trigger", json={"force": True, "request": "too", "body": 7})
    assert again.json()["id"] == forced.json()["id"]
    assert (await api.get(f"/v1/executions/{first['id']}")).json()["outcome"] == "running"
    paused = await api.post("/v1/jobs/busy/pause")
    assert paused.status_code == 200
    sink.released.set()
    for started in (first, forced.json()):
        await eventually(api, f"/v1/executions/{started['id']}", lambda e: e["outcome"] == "succeeded")
    assert len(sink.at("/slow/busy")) == 2


async def test_parallel_patches_each_get_a_revision_of_their_own(api: httpx.AsyncClient, sink: Sink) -> None:
    await create(api, sink, "crowded")
    answers = await asyncio.gather(
        *(api.patch("/v1/jobs/crowded", json={"labels": {f"l{n}": "x"}}) for n in range(3))
    )
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert sorted(answer.json()["revision"] for answer in answers) == [2, 3, 4]
    job = (await api.get("/v1/jobs/crowded")).json()
    assert job["labels"] == {"l0": "x", "l1": "x", "l2": "x"}
