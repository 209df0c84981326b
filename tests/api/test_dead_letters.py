"""Dead letters and reruns over HTTP: listed, read, redriven one by one and by filter, discarded."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.dead_letters import Letters
from tests.api.conftest import client_of
from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.api.test_outages import without_database
from workflows.contracts.names import dead_letter_workflow_id, key_of, opaque_id

pytestmark = pytest.mark.usefixtures("worker")

FAR = {"cron": "0 9 1 1 *"}
ONE_TRY = {"max_attempts": 1}
LETTERS = "/v1/dead-letters"
_numbers = itertools.count(1)


@pytest.fixture
async def own(live: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a tenant of its own: what it lists is of this test."""
    async with client_of(live, f"letters-{next(_numbers)}") as client:
        yield client


@pytest.fixture(autouse=True)
def mended(sink: Sink) -> Iterator[None]:
    yield
    sink.failing.clear()
    sink.released.set()


async def create(api: httpx.AsyncClient, sink: Sink, job: str, path: str, **more: Any) -> None:
    body = {"id": job, "schedule": FAR, "target": sink.target(path), "retry": ONE_TRY, **more}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201


async def trigger(api: httpx.AsyncClient, job: str, **body: Any) -> dict[str, Any]:
    answer = await api.post(f"/v1/jobs/{job}/trigger", json=body)
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def dead(api: httpx.AsyncClient, sink: Sink, job: str, **body: Any) -> dict[str, Any]:
    """A dead letter of a job whose target fails, as it is listed."""
    sink.failing.add(f"/{job}")
    run = await trigger(api, job, **body)
    page = await eventually(api, f"{LETTERS}?job={job}", lambda p: run["id"] in ids(p))
    return next(item for item in page["items"] if item["id"] == run["id"])


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["items"]]


async def gone(api: httpx.AsyncClient, letter: dict[str, Any]) -> None:
    await eventually(api, LETTERS, lambda p: letter["id"] not in ids(p))


async def ended(api: httpx.AsyncClient, run: dict[str, Any], outcome: str) -> dict[str, Any]:
    return await eventually(api, f"/v1/executions/{run['id']}", lambda e: e["outcome"] == outcome)


async def test_a_dead_letter_is_listed_read_and_redriven(own: httpx.AsyncClient, sink: Sink) -> None:
    """Its execution then shows every attempt, the first lateness and the new outcome."""
    await create(own, sink, "poison", "/poison", retry={"max_attempts": 2, "initial_interval": 0.1})
    listed = await dead(own, sink, "poison", body={"own": 1})
    assert (listed["status"], listed["last_attempt"], listed["status_code"]) == ("open", 2, 500)
    assert (listed["reason"], listed["job"], listed["trigger"]) == ("max_attempts", "poison", "manual")
    read = (await own.get(f"{LETTERS}/{listed['id']}")).json()
    assert [(one["attempt"], one["answer"]) for one in read["attempts"]] == [(1, "no"), (2, "no")]
    assert {**read, "attempts": None} == {**listed, "attempts": None}
    before = await ended(own, listed, "dead_lettered")

    sink.failing.clear()
    answer = await own.post(f"{LETTERS}/{listed['id']}/redrive")
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/executions/{listed['id']}"
    assert (answer.json()["key"], answer.json()["trigger"]) == (listed["key"], "redrive")
    await gone(own, listed)
    after = await ended(own, listed, "succeeded")
    assert [one["attempt"] for one in after["attempts"]] == [1, 2, 3]
    assert (after["started_at"], after["lateness_ms"]) == (before["started_at"], before["lateness_ms"])
    delivered = sink.at("/poison")[-1]
    assert (delivered.body, delivered.headers["carillon-attempt"]) == (b'{"own":1}', "3")
    assert ids((await own.get("/v1/executions?trigger=redrive")).json()) == [listed["id"]]
    for answer in (
        await own.get(f"{LETTERS}/{listed['id']}"),
        await own.post(f"{LETTERS}/{listed['id']}/redrive"),
        await own.delete(f"{LETTERS}/{listed['id']}"),
    ):
        assert answer.status_code == 404
    audited = (await own.get("/v1/audit?job=poison")).json()["items"]
    assert [entry["operation"] for entry in audited] == ["redrive", "trigger", "create"]


async def test_a_redrive_under_way_is_answered_and_holds_a_discard_off(
    own: httpx.AsyncClient, sink: Sink
) -> None:
    sink.released.clear()
    await create(own, sink, "slow-one", "/slow-one")
    sink.failing.add("/slow-one")
    sink.released.set()
    letter = await dead(own, sink, "slow-one")
    sink.failing.clear()
    sink.released.clear()
    path = f"{LETTERS}/{letter['id']}"
    first = await own.post(f"{path}/redrive", json={"force": True}, headers={"Idempotency-Key": "one"})
    again = await own.post(f"{path}/redrive", json={"force": True}, headers={"Idempotency-Key": "one"})
    other = await own.post(f"{path}/redrive")
    assert first.json()["id"] == again.json()["id"] == other.json()["id"] == letter["id"]
    assert [one.status_code for one in (first, again, other)] == [202] * 3
    await sink.delivery("/slow-one", 2)
    assert (await own.get(path)).json()["status"] == "redriving"
    held = await own.delete(path)
    assert (held.status_code, held.json()["active"]) == (409, letter["key"])
    sink.released.set()
    await gone(own, letter)
    assert len(sink.at("/slow-one")) == 2


async def test_a_discarded_letter_is_gone_and_its_execution_stays(
    live: FastAPI, own: httpx.AsyncClient, sink: Sink
) -> None:
    await create(own, sink, "trash", "/trash")
    letter = await dead(own, sink, "trash")
    path = f"{LETTERS}/{letter['id']}"
    async with client_of(live, "letters-stranger") as stranger:
        for answer in (
            await stranger.get(path), await stranger.delete(path), await stranger.post(f"{path}/redrive")
        ):  # fmt: skip
            assert answer.status_code == 404
    assert [(await own.delete(path)).status_code for _ in range(2)] == [204, 204]
    await gone(own, letter)
    assert "discarded" in (await own.get(path)).json()["detail"]
    assert (await ended(own, letter, "dead_lettered"))["id"] == letter["id"]
    again = await own.post(f"/v1/executions/{letter['id']}/rerun", json={"target_body": True})
    assert again.status_code == 202, "what cannot be redriven any more can be run again"


@pytest.mark.parametrize("unknown", ["nonsense", opaque_id("acme/none:2026-12-01T09:00:00Z")])
async def test_there_is_no_such_dead_letter(api: httpx.AsyncClient, unknown: str) -> None:
    for answer in (
        await api.get(f"{LETTERS}/{unknown}"),
        await api.post(f"{LETTERS}/{unknown}/redrive"),
        await api.delete(f"{LETTERS}/{unknown}"),
        await api.post(f"/v1/executions/{unknown}/rerun"),
    ):
        assert answer.status_code == 404


async def test_without_the_database_a_letter_is_read_redriven_and_discarded(
    live: FastAPI, own: httpx.AsyncClient, sink: Sink
) -> None:
    await create(own, sink, "dark", "/dark")
    one, other = [await dead(own, sink, "dark") for _ in range(2)]
    with without_database(live):
        read = await own.get(f"{LETTERS}/{one['id']}")
        assert [(seen["attempt"], seen["answer"]) for seen in read.json()["attempts"]] == [(1, None)]
        sink.failing.clear()
        assert (await own.post(f"{LETTERS}/{one['id']}/redrive")).status_code == 202
        assert (await own.delete(f"{LETTERS}/{other['id']}")).status_code == 204
        assert (await own.get(LETTERS)).status_code == 503
    await eventually(own, LETTERS, lambda p: p["items"] == [])


async def test_letters_are_redriven_by_filter_and_counted(
    own: httpx.AsyncClient, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one job, page by page while they close; those of another job stay."""
    monkeypatch.setattr("activities.bulk.PAGE", 2)
    await create(own, sink, "night", "/night")
    await create(own, sink, "other", "/other")
    letters = [await dead(own, sink, "night") for _ in range(5)]
    stays = await dead(own, sink, "other")
    sink.failing.clear()
    answer = await own.post(f"{LETTERS}/redrive", json={"job": "night"})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["action"], answer.json()["by"]) == ("redrive", "tester")
    done = await eventually(own, answer.headers["location"], lambda b: b["state"] == "completed")
    assert (done["matched"], done["done"], done["failed"]) == (5, 5, 0)
    assert set(done["sample"]) == {letter["id"] for letter in letters}
    page = await eventually(own, LETTERS, lambda p: len(p["items"]) == 1)
    assert ids(page) == [stays["id"]]
    assert len(sink.at("/night")) == 10
    again = await own.post(
        f"{LETTERS}/redrive", json={"since": "2020-01-01T00:00:00Z", "until": "2021-01-01T00:00:00Z"}
    )
    none = await eventually(own, again.headers["location"], lambda b: b["state"] == "completed")
    assert (none["matched"], none["done"]) == (0, 0)
    wrong = await own.post(f"{LETTERS}/redrive", json={"since": 5})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/since")


async def test_a_rerun_has_a_key_of_its_own(own: httpx.AsyncClient, sink: Sink) -> None:
    """One more than any before it; the key of a rerun counts with those of its occurrence."""
    await create(own, sink, "twice", "/twice")
    run = await trigger(own, "twice", request="first")
    await ended(own, run, "succeeded")
    path = f"/v1/executions/{run['id']}/rerun"
    asked = await own.post(path)
    assert (asked.status_code, asked.json()["errors"][0]["pointer"]) == (422, "/body")
    keyed = {"Idempotency-Key": "once"}
    first = await own.post(path, json={"target_body": True}, headers=keyed)
    again = await own.post(path, json={"target_body": True}, headers=keyed)
    assert first.json()["key"] == again.json()["key"] == f"{run['key']}+r1"
    assert (first.json()["trigger"], first.json()["scheduled_time"]) == ("rerun", run["scheduled_time"])
    await ended(own, first.json(), "succeeded")
    second = await own.post(f"/v1/executions/{first.json()['id']}/rerun", json={"body": "b"})
    assert second.json()["key"] == f"{run['key']}+r2"
    await ended(own, second.json(), "succeeded")
    deliveries = sink.at("/twice")
    assert [one.body for one in deliveries] == [b"", b"", b'"b"']
    assert deliveries[-1].headers["idempotency-key"] == f"{run['key']}+r2"
    assert deliveries[-1].headers["carillon-trigger"] == "rerun"
    assert key_of(second.json()["id"]) == second.json()["key"]
    found = (await own.get("/v1/executions?trigger=rerun")).json()
    assert {item["key"][-2:] for item in found["items"]} == {"r1", "r2"}


async def test_what_cannot_be_run_again_says_why(own: httpx.AsyncClient, sink: Sink) -> None:
    """What is alive, a dead letter, what was skipped, what is of a deleted job."""
    sink.released.clear()
    await create(own, sink, "slow-alive", "/slow-alive")
    alive = await trigger(own, "slow-alive")
    refused = await own.post(f"/v1/executions/{alive['id']}/rerun", json={"target_body": True})
    assert (refused.status_code, refused.json()["active"]) == (409, alive["key"])
    sink.released.set()
    await ended(own, alive, "succeeded")
    await own.delete("/v1/jobs/slow-alive")
    refused = await own.post(f"/v1/executions/{alive['id']}/rerun", json={"target_body": True})
    assert refused.status_code == 410

    await create(own, sink, "bad", "/bad")
    letter = await dead(own, sink, "bad")
    refused = await own.post(f"/v1/executions/{letter['id']}/rerun", json={"target_body": True})
    assert (refused.status_code, refused.json()["dead_letter"]) == (409, letter["id"])

    await create(own, sink, "skips", "/skips", schedule={"every": 1})
    at = (await own.get("/v1/jobs/skips")).json()["next_runs"][2]["scheduled_time"]
    assert (await own.post("/v1/jobs/skips/skip", json={"scheduled_time": at})).status_code == 200
    page = await eventually(own, "/v1/jobs/skips/executions?outcome=skipped", lambda p: p["items"])
    refused = await own.post(f"/v1/executions/{page['items'][0]['id']}/rerun")
    assert (refused.status_code, refused.json()["outcome"]) == (409, "skipped")


async def test_a_redrive_of_a_deleted_job_can_be_cancelled(own: httpx.AsyncClient, sink: Sink) -> None:
    """Its dead letter is open again then; once more, and it is closed."""
    await create(own, sink, "slow-deleted", "/slow-deleted")
    letter = await dead(own, sink, "slow-deleted")
    await own.delete("/v1/jobs/slow-deleted")
    sink.failing.clear()
    sink.released.clear()
    path = f"{LETTERS}/{letter['id']}"
    assert (await own.post(f"{path}/redrive")).status_code == 202
    await sink.delivery("/slow-deleted", 2)
    await eventually(own, f"/v1/executions/{letter['id']}", lambda e: e["outcome"] == "running")
    cancelled = await own.post(f"/v1/executions/{letter['id']}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    await eventually(own, path, lambda seen: seen["status"] == "open")
    sink.released.set()
    assert (await own.post(f"{path}/redrive")).status_code == 202
    await gone(own, letter)
    assert [one.headers["carillon-attempt"] for one in sink.at("/slow-deleted")] == ["1", "2", "3"]


async def test_of_too_many_letters_of_a_tenant_the_oldest_is_closed(
    live: FastAPI, live_temporal: Client, own: httpx.AsyncClient, sink: Sink
) -> None:
    """One whose workflow somebody has ended too."""
    await create(own, sink, "crowd", "/crowd")
    letters = [await dead(own, sink, "crowd") for _ in range(4)]
    lost = live_temporal.get_workflow_handle(dead_letter_workflow_id(letters[0]["key"]))
    await lost.terminate("an operator did it")
    index = live.state.carillon.letter_index
    tenant = letters[0]["key"].partition("/")[0]
    newest = await index.get(tenant, letters[-1]["key"])
    await ActivityEnvironment().run(Letters(live_temporal, index, open_a_tenant=2).store, newest)
    page = await eventually(own, LETTERS, lambda p: len(p["items"]) == 2)
    assert set(ids(page)) == {letter["id"] for letter in letters[2:]}
    assert "evicted" in (await own.get(f"{LETTERS}/{letters[1]['id']}")).json()["detail"]


async def test_a_letter_that_is_left_in_the_index_only_can_be_discarded(
    live_temporal: Client, own: httpx.AsyncClient, sink: Sink
) -> None:
    """Somebody terminated its workflow. Its redrive is a 404; once discarded it is gone."""
    await create(own, sink, "husk", "/husk")
    letter = await dead(own, sink, "husk")
    workflow = live_temporal.get_workflow_handle(dead_letter_workflow_id(letter["key"]))
    await workflow.terminate("an operator did it")
    path = f"{LETTERS}/{letter['id']}"
    assert (await own.post(f"{path}/redrive")).status_code == 404
    assert [(await own.delete(path)).status_code for _ in range(2)] == [204, 204]
    assert (await own.get(LETTERS)).json()["items"] == []


async def test_a_backfill_that_succeeds_closes_the_letter(own: httpx.AsyncClient, sink: Sink) -> None:
    """It goes on behind the attempts that failed; one that fails is the same letter with more attempts."""
    sink.failing.add("/filled")
    await create(own, sink, "filled", "/filled", schedule={"every": 1}, max_runs=1)
    page = await eventually(own, f"{LETTERS}?job=filled", lambda p: p["items"])
    [letter] = page["items"]
    path, at = f"{LETTERS}/{letter['id']}", letter["scheduled_time"]
    day = {"from": at, "to": at[:-1] + ".001Z"}
    assert (await own.post("/v1/jobs/filled/backfill", json=day)).status_code == 202
    worse = await eventually(own, path, lambda seen: seen["last_attempt"] == 2)
    assert (worse["status"], worse["trigger"], len(worse["attempts"])) == ("open", "schedule", 2)
    sink.failing.clear()
    assert (await own.post("/v1/jobs/filled/backfill", json=day)).status_code == 202
    await gone(own, letter)
    assert [one.headers["carillon-attempt"] for one in sink.at("/filled")] == ["1", "2", "3"]
