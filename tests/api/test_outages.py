"""The database or Temporal away, and callers that die half-way: what goes on, and what is put right."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from temporalio.client import Client
from temporalio.service import RPCError

from api.app import create_app
from api.idempotency import fingerprint
from api.jobs.creation import initial_state, start_job
from api.jobs.sweeper import UNFINISHED_AFTER, Sweeper
from api.state import AppState
from infra.database.errors import DatabaseUnavailable
from infra.database.schema import jobs
from infra.settings import Settings
from tests.api.conftest import client_of, settings_in, started
from tests.api.relay import relay_to
from tests.api.sink import Sink
from tests.stopwatch import Stopwatch
from workflows.contracts.definition import JobDefinition
from workflows.contracts.names import job_workflow_id

pytestmark = pytest.mark.usefixtures("worker")

FAR = {"cron": "0 9 1 1 *"}


@contextlib.contextmanager
def without_database(app: FastAPI) -> Iterator[None]:
    """Every statement of this process fails as it does when the server is gone."""
    database = app.state.carillon.database

    async def gone(_: object) -> NoReturn:
        raise DatabaseUnavailable("the database is away")

    database.read = database.write = gone
    try:
        yield
    finally:
        del database.read, database.write


@pytest.fixture
async def second(live_settings: Settings) -> AsyncIterator[FastAPI]:
    """Another API process over the same installation: it remembers nothing of the first."""
    async with started(create_app(live_settings)) as app:
        yield app


async def test_without_the_database_one_job_is_read_changed_and_run(
    live: FastAPI, api: httpx.AsyncClient, sink: Sink
) -> None:
    body = {"id": "lonely", "schedule": FAR, "target": sink.target("/lonely")}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    with without_database(live):
        read = await api.get("/v1/jobs/lonely")
        assert (read.status_code, read.json()["stale"]) == (200, False)
        patched = await api.patch("/v1/jobs/lonely", json={"priority": 1})
        assert (patched.status_code, patched.json()["revision"]) == (200, 2)
        assert (await api.post("/v1/jobs/lonely/pause")).json()["status"] == "paused"
        assert (await api.post("/v1/jobs/lonely/trigger")).status_code == 202
        await sink.delivery("/lonely")
        for call in (
            api.get("/v1/jobs"),
            api.post("/v1/jobs", json={**body, "id": "new"}),
            api.get("/v1/jobs/lonely/executions"),
            api.get("/v1/jobs/never-seen"),
        ):
            answer = await call
            assert answer.status_code == 503
            assert answer.json()["type"] == "urn:carillon:problem:database-unavailable"
            assert answer.headers["retry-after"]
        deleted = await api.delete("/v1/jobs/lonely")
        assert deleted.status_code == 200
        assert (await api.get("/v1/jobs/lonely")).status_code in (404, 503)


async def test_a_process_that_never_saw_the_job_finds_it_by_visibility(
    api: httpx.AsyncClient, sink: Sink, second: FastAPI, live_temporal: Client
) -> None:
    for _ in range(2):
        body = {"id": "searched", "schedule": FAR, "target": sink.target("/searched")}
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
        assert (await api.delete("/v1/jobs/searched")).status_code == 200
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    handle = live_temporal.get_workflow_handle(job_workflow_id("acme", "searched~3"))
    async with client_of(second) as other:
        with without_database(second):
            answers = [await other.get("/v1/jobs/searched") for _ in range(20) if await handle.describe()]
    found = [answer.json() for answer in answers if answer.status_code == 200]
    assert found, answers[-1].text
    assert found[-1]["revision"] == 3


@pytest.mark.parametrize("call", ["post", "put", "put-if-absent", "batch"])
async def test_a_deletion_that_the_index_has_not_heard_of_frees_the_id(
    live: FastAPI, api: httpx.AsyncClient, sink: Sink, live_temporal: Client, call: str
) -> None:
    """As after a time without the database: the job's row says that it is active, the job that it is not."""
    job = f"unheard-{call}"
    body = {"id": job, "schedule": FAR, "target": sink.target("/unheard")}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    assert (await api.delete(f"/v1/jobs/{job}")).status_code == 200
    await live_temporal.get_workflow_handle(job_workflow_id("acme", job)).result()  # all is written
    await live.state.carillon.database.write(
        lambda connection: connection.execute(
            sa.update(jobs).where(jobs.c.job == job).values(status="active", change=jobs.c.change - 1)
        )
    )
    assert [one["id"] for one in (await api.get("/v1/jobs", params={"q": job})).json()["items"]] == [job]
    if call == "batch":
        [answer] = (await api.post("/v1/jobs/batch", json={"jobs": [body]})).json()["results"]
        assert (answer["status"], answer["job"]["revision"]) == (201, 2)
        return
    headers = {"if-none-match": "*"} if call == "put-if-absent" else {}
    created = await (
        api.post("/v1/jobs", json=body)
        if call == "post"
        else api.put(f"/v1/jobs/{job}", json=body, headers=headers)
    )
    assert (created.status_code, created.json()["revision"]) == (201, 2), created.text
    assert (await api.get(f"/v1/jobs/{job}")).json()["revision"] == 2


async def test_both_away_is_a_503_that_comes_soon(tmp_path: Path) -> None:
    app = create_app(settings_in(tmp_path))
    async with started(app), client_of(app) as api:
        with without_database(app):
            for call in (
                api.get("/v1/jobs/x"),
                api.patch("/v1/jobs/x", json={}),
                api.post("/v1/jobs/x/trigger"),
                api.delete("/v1/jobs/x"),
            ):
                answer = await call
                assert answer.status_code == 503, answer.text
        assert (await api.get("/healthz")).status_code == 200
        ready = await api.get("/readyz")
        assert (ready.status_code, ready.json()["database"], ready.json()["temporal"]) == (503, True, False)


async def test_temporal_lost_while_we_run_leaves_reads_and_says_503_to_changes(
    live_settings: Settings, sink: Sink
) -> None:
    async with relay_to(live_settings.temporal_address) as relay:
        app = create_app(live_settings.model_copy(update={"temporal_address": relay.address}))
        async with started(app), client_of(app) as api:
            body = {"id": "cut-off", "schedule": FAR, "target": sink.target("/cut-off")}
            assert (await api.post("/v1/jobs", json=body)).status_code == 201
            await relay.cut()
            with Stopwatch() as reading:
                read = await api.get("/v1/jobs/cut-off")
            assert (read.status_code, read.json()["stale"]) == (200, True)
            assert reading.seconds < 4, "it asks for two"
            assert (await api.get("/v1/jobs?q=cut-off")).json()["items"][0]["id"] == "cut-off"
            with Stopwatch() as changing:
                answers = await asyncio.gather(
                    api.post("/v1/jobs/cut-off/pause"),
                    api.post("/v1/jobs", json={**body, "id": "cut-off-too"}),
                    api.delete("/v1/jobs/cut-off"),
                    api.put("/v1/jobs/cut-off", json={**body, "priority": 1}),
                )
            assert changing.seconds < 14, "ten are promised, and a machine takes some for itself"
            for answer in answers:
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"]
            assert "may have been created" in answers[1].json()["detail"]
            assert (await api.get("/readyz")).status_code == 503


async def test_ready_means_temporal_and_a_migrated_database(api: httpx.AsyncClient) -> None:
    assert (await api.get("/readyz")).json() == {"status": "ready", "temporal": True, "database": True}


class Halfway:
    """A creation whose caller died after some of its steps."""

    def __init__(self, app: FastAPI, client: Client, sink: Sink) -> None:
        self.state: AppState = app.state.carillon
        self.client = client
        self.sink = sink

    def body(self, job: str) -> dict[str, Any]:
        return {"id": job, "schedule": {"every": "PT1H"}, "target": self.sink.target(f"/{job}")}

    async def leave(self, job: str, *, begun: bool, age: timedelta = timedelta(0)) -> JobDefinition:
        """Reserved, and its workflow started if ``begun``, ``age`` ago."""
        accepted = datetime.now(UTC) - age
        definition = JobDefinition.model_validate(
            {**self.body(job), "schedule": {"every": "PT1H", "anchor": accepted.replace(microsecond=0)}}
        )
        reservation = await self.state.index.reserve(
            "acme",
            job,
            definition,
            fingerprint=fingerprint("POST /v1/jobs", self.body(job)),
            max_jobs=1000,
            create_rate=1000,
            now=accepted,
        )
        if begun:
            await start_job(self.client, initial_state(reservation.job, paused=False))
        return definition

    async def exists(self, job: str) -> bool:
        try:
            await self.client.get_workflow_handle(job_workflow_id("acme", job)).describe()
        except RPCError:
            return False
        return True


@pytest.fixture
def halfway(live: FastAPI, live_temporal: Client, sink: Sink) -> Halfway:
    return Halfway(live, live_temporal, sink)


@pytest.mark.parametrize("begun", [False, True], ids=["reserved", "started"])
async def test_a_repeat_carries_an_unfinished_creation_on(
    api: httpx.AsyncClient, halfway: Halfway, begun: bool
) -> None:
    job = f"carried-{begun}".lower()
    first = await halfway.leave(job, begun=begun)
    assert (await api.get(f"/v1/jobs/{job}")).status_code == 404
    made = await api.post("/v1/jobs", json=halfway.body(job))
    assert made.status_code == 201, made.text
    anchor = made.json()["schedule"]["anchor"]
    assert anchor == first.model_dump(mode="json")["schedule"]["anchor"], "the first acceptance counts"
    read = (await api.get(f"/v1/jobs/{job}")).json()
    assert (read["stale"], read["schedule"]) == (False, made.json()["schedule"])


async def test_another_request_does_not_take_an_unfinished_creations_place(
    api: httpx.AsyncClient, halfway: Halfway
) -> None:
    await halfway.leave("taken", begun=False)
    answer = await api.post("/v1/jobs", json={**halfway.body("taken"), "priority": 1})
    assert answer.status_code == 409


async def test_the_sweeper_asks_temporal_what_became_of_old_reservations(
    api: httpx.AsyncClient, halfway: Halfway
) -> None:
    old = UNFINISHED_AFTER + timedelta(seconds=1)
    await halfway.leave("old-begun", begun=True, age=old)
    await halfway.leave("old-unbegun", begun=False, age=old)
    await halfway.leave("young", begun=False)
    sweeper = Sweeper(halfway.state.index, halfway.state.temporal, halfway.state.clock)
    assert await sweeper.sweep() == 2
    assert (await api.get("/v1/jobs/old-begun")).json()["status"] == "active"
    assert (await api.get("/v1/jobs/old-unbegun")).status_code == 404
    assert await sweeper.sweep() == 0
    free = await api.post("/v1/jobs", json={**halfway.body("old-unbegun"), "priority": 1})
    assert free.status_code == 201, "its id is free again"
    assert (await api.post("/v1/jobs", json={**halfway.body("young"), "priority": 1})).status_code == 409


async def test_a_start_that_comes_after_its_reservation_was_freed_is_undone(
    api: httpx.AsyncClient, halfway: Halfway, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = halfway.state.index
    activate_all = index.activate_all

    async def freed_meanwhile(tenant: str, rows: Any) -> Any:
        await index.release(tenant, rows[0].job, now=halfway.state.clock())
        return await activate_all(tenant, rows)

    monkeypatch.setattr(index, "activate_all", freed_meanwhile)
    answer = await api.post("/v1/jobs", json=halfway.body("undone"))
    assert answer.status_code == 503
    assert "nothing was created" in answer.json()["detail"]
    described = await halfway.client.get_workflow_handle(job_workflow_id("acme", "undone")).describe()
    assert described.status is not None
    assert described.status.name == "TERMINATED"
    monkeypatch.undo()
    again = await api.post("/v1/jobs", json=halfway.body("undone"))
    assert again.status_code == 201


async def test_a_row_that_could_not_be_written_does_not_fail_the_change(
    live: FastAPI, api: httpx.AsyncClient, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"id": "unwritten", "schedule": FAR, "target": sink.target("/unwritten")}
    await api.post("/v1/jobs", json=body)

    async def gone(*_: object) -> NoReturn:
        raise DatabaseUnavailable("the database is away")

    monkeypatch.setattr(live.state.carillon.index, "apply", gone)
    assert (await api.post("/v1/jobs/unwritten/pause")).status_code == 200
