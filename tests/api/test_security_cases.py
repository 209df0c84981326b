"""Cases that other services got wrong, as far as the API decides: addresses, headers, pages, instants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.state import AppState
from infra.settings import Settings
from tests.api.conftest import client_of, settings_in, started
from tests.api.sink import Sink, sink_server
from tests.infra.database.samples import create, row_of

FAR = {"cron": "0 9 1 1 *"}
TARGET = {"type": "http", "url": "https://example.com/hook"}


@pytest.fixture(scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """An installation that allows no networks beside the public ones; Temporal is away."""
    settings = settings_in(tmp_path_factory.mktemp("strict"), allow_networks=())
    async with started(create_app(settings)) as app, client_of(app) as client:
        yield client


ADDRESSES = [
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:169.254.169.254]", "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[::127.0.0.1]", "[2002:a9fe:a9fe::]", "[64:ff9b::a9fe:a9fe]", "[2001:0:4136:e378::]", "[fe81::1]",
    "[febf::1]", "[fec0::1]", "[fd00::1]", "[::]", "100.64.0.1", "0.0.0.0", "169.254.170.2", "224.0.0.1",
    "255.255.255.255", "127.0.0.1", "[::1]", "10.0.0.5",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
async def test_an_address_that_is_not_public_is_refused_in_every_spelling(
    strict: httpx.AsyncClient, address: str
) -> None:
    """f01, f03: by creation, by replacement and in a batch, pointing at the field."""
    body = {"schedule": FAR, "target": {"type": "http", "url": f"http://{address}/latest/meta-data/"}}
    for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/jobs/x")):
        refused = await strict.request(method, path, json=body)
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["pointer"] == "/target/url"


@pytest.mark.usefixtures("worker")
async def test_awkward_but_legal_header_values_are_sent_unchanged(api: httpx.AsyncClient, sink: Sink) -> None:
    """f07: colons, nothing at all, a kilobyte."""
    headers = {"X-Time": "1:2:3", "X-Empty": "", "X-Long": "v" * 1024}
    target = sink.target("/awkward", headers=headers)
    made = await api.post("/v1/jobs", json={"id": "awkward", "schedule": {"in": 0}, "target": target})
    assert made.status_code == 201, made.text
    assert made.json()["target"]["headers"] == headers
    sent = (await sink.delivery("/awkward")).headers
    assert {name: sent[name.lower()] for name in headers} == headers


async def test_a_cursor_stays_good_when_its_row_is_deleted(live: FastAPI) -> None:
    """f09: 30 jobs of one instant in pages of seven; behind each page its last job is deleted."""
    instant = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
    state: AppState = live.state.carillon
    for number in range(30):
        await create(state.index, "pages", f"job-{number:02}", now=instant)
    seen: list[str] = []
    async with client_of(live, "pages") as api:
        query = {"sort": "-created_at", "limit": "7"}
        while True:
            page = (await api.get("/v1/jobs", params=query)).json()
            seen += [job["id"] for job in page["items"]]
            last = await state.index.get("pages", seen[-1])
            assert last is not None
            await state.index.apply("pages", row_of(last, status="deleted", change=2))
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
    assert seen == [f"job-{number:02}" for number in range(30)]


NOW = datetime(2026, 7, 1, 11, 0, 0, tzinfo=UTC)
PAST = {
    "a month ago": ("2026-06-01T11:00:00Z", 422),
    "a minute and a second ago": ("2026-07-01T10:58:59Z", 422),
    "a minute ago": ("2026-07-01T10:59:00Z", 201),
    "a second ago": ("2026-07-01T10:59:59Z", 201),
    "now": ("2026-07-01T11:00:00Z", 201),
    "a second ago, by another offset": ("2026-07-01T19:59:59+09:00", 201),
    "tomorrow there, an hour ago here": ("2026-07-01T19:00:00+09:00", 422),
}


@pytest.fixture(scope="module")
async def in_july(live_settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """An API whose clock stands at :data:`NOW`."""
    async with started(create_app(live_settings, clock=lambda: NOW)) as app, client_of(app, "july") as client:
        yield client


@pytest.mark.parametrize(("at", "status"), PAST.values(), ids=PAST.keys())
async def test_a_one_off_in_the_past_is_refused_beyond_a_minute(
    in_july: httpx.AsyncClient, at: str, status: int
) -> None:
    """f13: accepted means that it runs; the preview says the same."""
    answer = await in_july.post("/v1/jobs", json={"schedule": {"at": at}, "target": TARGET})
    assert answer.status_code == status, answer.text
    previewed = await in_july.post("/v1/schedules/preview", json={"schedule": {"at": at}})
    assert previewed.status_code == (200 if status == 201 else 422)
    if status == 422:
        assert "in the past" in answer.json()["detail"]
        assert answer.json()["detail"] == previewed.json()["detail"]


@pytest.mark.usefixtures("worker")
async def test_a_job_deleted_while_it_runs_leaves_no_place_of_the_quota_taken(
    live_settings: Settings,
) -> None:
    """f15: the row and the quota go with the DELETE, whatever becomes of the run and its worker."""
    settings = live_settings.model_copy(update={"max_jobs": 1})
    async with (
        started(create_app(settings)) as app,
        client_of(app, "quota") as api,
        sink_server() as sink,
    ):
        body: dict[str, Any] = {"schedule": FAR, "target": sink.target("/slow/quota")}
        assert (await api.post("/v1/jobs", json={**body, "id": "first"})).status_code == 201
        execution = (await api.post("/v1/jobs/first/trigger")).json()
        await sink.delivery("/slow/quota")
        assert (await api.post("/v1/jobs", json={**body, "id": "second"})).status_code == 409
        deleted = await api.delete("/v1/jobs/first")
        assert [running["key"] for running in deleted.json()["in_flight"]] == [execution["key"]]
        made = await api.post("/v1/jobs", json={**body, "id": "first"})
        assert made.status_code == 201, "the id is free, and so is the place"
        sink.released.set()
        async with asyncio.timeout(20):
            while (await api.get(f"/v1/executions/{execution['id']}")).json()["outcome"] != "succeeded":
                await asyncio.sleep(0.05)
        assert (await api.get("/v1/jobs/first")).json()["last_run"] is None, "it is another generation"
        assert (await api.delete("/v1/jobs/first")).status_code == 200
        statuses = [
            (await api.post("/v1/jobs", json={**body, "id": job})).status_code for job in ("third", "fourth")
        ]
        assert statuses == [201, 409]
