"""Backfills over HTTP: counted, refused, followed, cancelled; each call once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.api.conftest import client_of
from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.api.test_outages import without_database
from tests.stopping import going_on

pytestmark = pytest.mark.usefixtures("worker")

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def at(hours: float) -> str:
    """So many hours after midnight of the day before yesterday."""
    return (TODAY - timedelta(days=2) + timedelta(hours=hours)).isoformat().replace("+00:00", "Z")


async def create(api: httpx.AsyncClient, sink: Sink, job: str, **more: Any) -> str:
    """An hourly job, since long ago; its address."""
    body = {
        "id": job,
        "schedule": {"every": "PT1H", "anchor": at(-24 * 40)},
        "except": [{"from": at(20), "to": at(24 * 9)}],
        "target": sink.target(f"/{job}"),
        **more,
    }
    made = await api.post("/v1/jobs", json=body)
    assert made.status_code == 201, made.text
    return f"/v1/jobs/{job}"


async def ask(api: httpx.AsyncClient, job: str, **fields: Any) -> httpx.Response:
    return await api.post(f"{job}/backfill", json={"from": at(0), "to": at(5), **fields})


async def test_from_a_dry_run_to_the_end(api: httpx.AsyncClient, sink: Sink) -> None:
    job = await create(api, sink, "gaps")
    dry = await ask(api, job, dry_run=True)
    assert dry.status_code == 202, dry.text
    would = dry.json()
    assert (would["id"], would["status"], would["total"], would["remaining"]) == (None, "dry_run", 5, 5)
    assert would["first"] == [at(hour) for hour in range(5)]
    assert (await api.get(f"{job}/backfills")).json() == {"items": [], "next_cursor": None}
    assert sink.at("/gaps") == []
    started = await ask(api, job, to=at(2))
    assert started.status_code == 202, started.text
    assert started.headers["location"] == f"{job}/backfills/b1"
    assert (started.json()["id"], started.json()["total"]) == ("b1", 2)
    done = await eventually(api, f"{job}/backfills/b1", lambda b: b["status"] == "done")
    assert [done[name] for name in ("started", "succeeded", "dead_lettered", "cancelled", "remaining")] == [
        2, 2, 0, 0, 0
    ]  # fmt: skip
    assert (done["by"], done["only"], done["first"]) == ("tester", "missing", None)
    await eventually(
        api, f"{job}/executions?trigger=backfill&outcome=succeeded", lambda p: len(p["items"]) == 2
    )
    again = (await ask(api, job, dry_run=True)).json()
    assert (again["total"], again["first"][0]) == (3, at(2)), "what has succeeded is not missing"
    everything = (await ask(api, job, dry_run=True, only="all")).json()
    assert (everything["total"], everything["first"][0]) == (5, at(0))
    second = (await ask(api, job, to=at(1), only="all")).json()
    assert second["id"] == "b2"
    await eventually(api, f"{job}/backfills/b2", lambda b: b["status"] == "done")
    assert [one["id"] for one in (await api.get(f"{job}/backfills")).json()["items"]] == ["b2", "b1"]
    deliveries = sink.at("/gaps")
    assert [one.headers["idempotency-key"] for one in deliveries] == [
        f"acme/gaps:{at(0)}", f"acme/gaps:{at(1)}", f"acme/gaps:{at(0)}+b2"
    ]  # fmt: skip
    assert {one.headers["carillon-trigger"] for one in deliveries} == {"backfill"}
    page = (await api.get("/v1/executions?trigger=backfill&job=gaps")).json()
    assert {item["trigger"] for item in page["items"]} == {"backfill"}
    audit = (await api.get("/v1/audit?job=gaps")).json()["items"]
    assert [entry["operation"] for entry in audit] == ["backfill", "backfill", "create"]


@pytest.mark.parametrize(
    ("fields", "pointer", "says"),
    [
        pytest.param({"to": at(0)}, "/from", "before `to`", id="an-empty-range"),
        pytest.param({"to": "2090-01-01T00:00:00Z"}, "/to", "future", id="the-future"),
        pytest.param({"from": at(-24 * 35)}, "/from", "30 days", id="beyond-the-history"),
        pytest.param({"max_concurrent": 2}, "/max_concurrent", "`allow`", id="at-once-under-forbid"),
        pytest.param({"max_concurrent": 101}, "/max_concurrent", "100", id="too-many-at-once"),
        pytest.param({"only": "some"}, "/only", "missing", id="only-what"),
        pytest.param({"from": 7}, "/from", "RFC 3339", id="a-number-for-an-instant"),
        pytest.param({"from": None}, "/from", "", id="no-beginning"),
        pytest.param({"parallel": 3}, "/parallel", "", id="an-unknown-field"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_the_place_at_fault(
    api: httpx.AsyncClient, sink: Sink, fields: dict[str, Any], pointer: str, says: str
) -> None:
    if (await api.get("/v1/jobs/refused")).status_code == 404:
        await create(api, sink, "refused")
    refused = await ask(api, "/v1/jobs/refused", dry_run=True, **fields)
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["errors"][0]["pointer"] == pointer
    assert says in problem["detail"]


async def test_the_number_of_occurrences_is_bounded(api: httpx.AsyncClient, sink: Sink) -> None:
    job = await create(
        api,
        sink,
        "dense",
        schedule={"every": "PT1S", "anchor": at(-24 * 40)},
        **{"except": [{"from": at(40), "to": at(24 * 9)}]},
    )
    refused = await ask(api, job, to=at(28), dry_run=True)
    assert (refused.status_code, "100000" in refused.json()["detail"]) == (422, True)
    counted = await ask(api, job, to=at(27), dry_run=True)
    assert (counted.status_code, counted.json()["total"]) == (202, 97_200)


async def test_a_paused_job_takes_backfills_and_each_call_counts_once(
    api: httpx.AsyncClient, sink: Sink, live: FastAPI
) -> None:
    job = await create(api, sink, "paused-fill", concurrency={"policy": "allow", "limit": 3})
    await api.post(f"{job}/pause")
    headers = {"idempotency-key": "fill-once"}
    body = {"from": at(0), "to": at(5), "max_concurrent": 3}
    first = await api.post(f"{job}/backfill", json=body, headers=headers)
    again = await api.post(f"{job}/backfill", json=body, headers=headers)
    assert (first.status_code, again.json()) == (202, first.json())
    assert again.headers["idempotent-replayed"] == "true"
    too_many = await ask(api, job, max_concurrent=4, dry_run=True)
    assert (too_many.status_code, too_many.json()["errors"][0]["pointer"]) == (422, "/max_concurrent")
    await api.get(job)
    with without_database(live):
        missing = await api.post(f"{job}/backfill", json=body)
        assert (missing.status_code, missing.json()["type"]) == (
            503, "urn:carillon:problem:database-unavailable"
        )  # fmt: skip
        everything = {**body, "only": "all"}
        keyed = {"idempotency-key": "fill-away"}
        ids = [
            (await api.post(f"{job}/backfill", json=everything, headers=keyed)).json()["id"] for _ in range(2)
        ]
        assert ids == ["b2", "b2"], "the job remembers the call"
        assert (await api.get(f"{job}/backfills/b2")).json()["status"] == "running"
        cancelled = await api.delete(f"{job}/backfills/b2")
    assert cancelled.status_code == 200, cancelled.text
    one = cancelled.json()
    assert (one["status"], one["reason"], one["remaining"], one["in_flight"]) == ("cancelled", "asked", 5, [])
    assert (await api.delete(f"{job}/backfills/b2")).json()["ended_at"] == one["ended_at"]
    for _ in range(9):
        assert (await ask(api, job)).status_code == 202
    full = await ask(api, job)
    assert (full.status_code, full.json()["type"]) == (429, "urn:carillon:problem:too-many-requests")
    for number in range(3, 12):
        await api.delete(f"{job}/backfills/b{number}")
    await api.post(f"{job}/resume")
    await eventually(api, f"{job}/backfills/b1", lambda b: b["status"] == "done" and b["succeeded"] == 5)
    assert len(sink.at("/paused-fill")) == 5


async def test_a_cancelled_backfill_names_what_goes_on(api: httpx.AsyncClient, sink: Sink) -> None:
    sink.released.clear()
    job = await create(api, sink, "stopped", target=sink.target("/slow/stopped"))
    await ask(api, job)
    delivery = await sink.delivery("/slow/stopped")
    answer = await api.delete(f"{job}/backfills/b1")
    assert going_on(answer) == {delivery.headers["idempotency-key"]}
    cancelled = answer.json()
    assert (cancelled["started"], cancelled["remaining"]) == (1, 4)
    sink.released.set()
    ended = await eventually(api, f"{job}/backfills/b1", lambda b: b["succeeded"] == 1)
    assert (ended["status"], len(sink.at("/slow/stopped"))) == ("cancelled", 1)


async def test_what_is_not_there_is_404(api: httpx.AsyncClient, sink: Sink, live: FastAPI) -> None:
    job = await create(api, sink, "known")
    for name in ("b1", "b0", "1", "x", "b1e9"):
        assert (await api.get(f"{job}/backfills/{name}")).status_code == 404
        assert (await api.delete(f"{job}/backfills/{name}")).status_code == 404
    assert (await ask(api, "/v1/jobs/unknown")).status_code == 404
    assert (await api.get("/v1/jobs/unknown/backfills")).status_code == 404
    async with client_of(live, "other") as other:
        assert (await ask(other, job)).status_code == 404
        assert (await other.get(f"{job}/backfills")).status_code == 404
    async with client_of(live, scope="jobs:read") as reader:
        assert (await ask(reader, job)).status_code == 403


async def test_a_one_off_that_failed_is_run_again(api: httpx.AsyncClient, sink: Sink) -> None:
    sink.failing.add("/failing-once")
    when = datetime.now(UTC).replace(microsecond=0)
    one_off = {"schedule": {"at": when.isoformat()}, "except": [], "retry": {"max_attempts": 1}}
    job = await create(api, sink, "one-off", target=sink.target("/failing-once"), **one_off)
    await eventually(
        api, f"{job}/executions", lambda p: p["items"] and p["items"][0]["outcome"] == "dead_lettered"
    )
    await api.patch(job, json={"target": sink.target("/one-off")})
    to = (when + timedelta(seconds=1)).isoformat()
    await asyncio.sleep(1)
    asked = await api.post(f"{job}/backfill", json={"from": when.isoformat(), "to": to})
    assert (asked.status_code, asked.json()["total"]) == (202, 1), asked.text
    await eventually(api, f"{job}/backfills/b1", lambda b: b["status"] == "done")
    delivery = await sink.delivery("/one-off")
    assert delivery.headers["carillon-execution-id"].endswith(":2")
    page = await eventually(
        api, f"{job}/executions", lambda p: p["items"] and p["items"][0]["outcome"] == "succeeded"
    )
    assert [one["attempt"] for one in page["items"][0]["attempts"]] == [1, 2]


async def test_behind_the_last_run_of_max_runs_a_backfill_goes_on(api: httpx.AsyncClient, sink: Sink) -> None:
    """The schedule never gets there; what the call counted is run all the same, and it ends."""
    every = {"every": "PT1S"}
    job = await create(api, sink, "used-up", schedule=every, max_runs=1, **{"except": []})
    made = datetime.fromisoformat((await api.get(job)).json()["created_at"])
    await eventually(api, job, lambda found: found["status"] == "completed")
    from_ = made.replace(microsecond=0) + timedelta(seconds=1)
    await asyncio.sleep(max((from_ + timedelta(seconds=4) - datetime.now(UTC)).total_seconds(), 0))
    within = {"from": from_.isoformat(), "to": (from_ + timedelta(seconds=3)).isoformat()}
    asked = await api.post(f"{job}/backfill", json={**within, "only": "all"})
    assert (asked.status_code, asked.json()["total"]) == (202, 3), asked.text
    done = await eventually(api, f"{job}/backfills/b1", lambda b: b["status"] == "done")
    assert (done["started"], done["succeeded"]) == (3, 3)
    assert (await api.get(job)).json()["status"] == "completed"
