"""One change for one Idempotency-Key: repeats, crashes half-way, other processes, no database."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from api.app import create_app
from api.idempotency import IdempotencyKey
from api.once import ANSWER_MAX_BYTES, Once
from api.problems import Kind, ProblemError
from api.state import AppState
from infra.settings import Settings
from tests.api.conftest import client_of, started
from tests.api.sink import Sink
from tests.api.test_outages import without_database

FAR = {"cron": "0 9 1 1 *"}


@pytest.fixture
async def second(live_settings: Settings) -> AsyncIterator[FastAPI]:
    """Another API process over the same installation."""
    async with started(create_app(live_settings)) as app:
        yield app


def once_of(app: FastAPI) -> Once:
    state: AppState = app.state.carillon
    return state.once


def fresh_key(fingerprint: str = "f") -> IdempotencyKey:
    return IdempotencyKey("acme", uuid.uuid4().hex, fingerprint)


class Deed:
    """Something that must be done once: remembers what it was called."""

    def __init__(self, *fails: Exception) -> None:
        self.names: list[str] = []
        self.fails = list(fails)
        self.body: Any = {"done": True}
        self.headers: dict[str, str] = {"ETag": '"1"'}

    async def __call__(self, name: str) -> JSONResponse:
        self.names.append(name)
        if self.fails:
            raise self.fails.pop(0)
        return JSONResponse(self.body, 202, self.headers)


async def test_a_repeat_is_answered_as_the_first_was_by_any_process(live: FastAPI, second: FastAPI) -> None:
    key, deed = fresh_key(), Deed()
    first = await once_of(live).answer(key, deed)
    for app in (live, second):
        again = await once_of(app).answer(key, deed)
        assert (again.status_code, again.body) == (first.status_code, first.body)
        assert (again.headers["etag"], again.headers["idempotent-replayed"]) == ('"1"', "true")
    assert len(deed.names) == 1
    assert "idempotent-replayed" not in first.headers


async def test_one_that_died_half_way_is_carried_on_under_the_same_name(
    live: FastAPI, second: FastAPI
) -> None:
    """The process that took the key is gone before it was answered: nobody waits for it."""
    key = fresh_key()
    deed = Deed(asyncio.CancelledError(), ProblemError(Kind.NO_ANSWER, "No worker answered in time."))  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        await once_of(live).answer(key, deed)
    with pytest.raises(ProblemError):
        await once_of(second).answer(key, deed)
    assert (await once_of(second).answer(key, deed)).status_code == 202
    assert len(deed.names) == 3
    assert len(set(deed.names)) == 1


async def test_the_same_key_with_another_request_is_422_in_every_process(
    live: FastAPI, second: FastAPI
) -> None:
    key, deed = fresh_key(), Deed()
    await once_of(live).answer(key, deed)
    other = IdempotencyKey(key.tenant, key.key, "another request")
    for app in (live, second):
        with pytest.raises(ProblemError) as refused:
            await once_of(app).answer(other, deed)
        assert refused.value.kind is Kind.IDEMPOTENCY_MISMATCH
    stranger = IdempotencyKey("other-tenant", key.key, "another request")
    assert (await once_of(second).answer(stranger, deed)).status_code == 202
    assert len(set(deed.names)) == 2, "another tenant's change has another name"


async def test_while_the_database_is_away_the_change_is_made_under_its_name(live: FastAPI) -> None:
    """Then only the job recognises the repeat, by that name."""
    key, deed = fresh_key(), Deed()
    with without_database(live):
        for _ in range(2):
            assert (await once_of(live).answer(key, deed)).status_code == 202
        with pytest.raises(ProblemError):
            await once_of(live).answer(IdempotencyKey(key.tenant, key.key, "other"), deed)
    assert len(set(deed.names)) == 1
    assert len(deed.names) == 2


async def test_an_answer_that_is_long_or_asks_for_another_try_is_not_kept(live: FastAPI) -> None:
    for change in ({"body": "x" * ANSWER_MAX_BYTES}, {"headers": {"Retry-After": "1"}}):
        key, deed = fresh_key(), Deed()
        for name, value in change.items():
            setattr(deed, name, value)
        for _ in range(2):
            await once_of(live).answer(key, deed)
        assert len(deed.names) == 2
        assert len(set(deed.names)) == 1


async def test_without_a_key_every_call_is_another(live: FastAPI) -> None:
    deed = Deed()
    for _ in range(2):
        await once_of(live).answer(None, deed)
    assert len(set(deed.names)) == 2


@pytest.mark.usefixtures("worker")
async def test_a_pause_sent_again_after_a_resume_does_not_pause_again(
    live: FastAPI, second: FastAPI, api: httpx.AsyncClient, sink: Sink
) -> None:
    body = {"id": "once", "schedule": FAR, "target": sink.target("/once")}
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    async with client_of(second) as other:
        first = await api.post("/v1/jobs/once/pause", headers={"idempotency-key": "pause-1"})
        assert (await other.post("/v1/jobs/once/resume")).json()["status"] == "active"
        again = await other.post("/v1/jobs/once/pause", headers={"idempotency-key": "pause-1"})
        assert (again.status_code, again.json()) == (200, first.json())
        assert again.headers["idempotent-replayed"] == "true"
        assert (await api.get("/v1/jobs/once")).json()["status"] == "active"
        for call, content in (("resume", {}), ("pause", {"reason": "other"}), ("trigger", {})):
            answer = await other.post(
                f"/v1/jobs/once/{call}", json=content, headers={"idempotency-key": "pause-1"}
            )
            assert answer.status_code == 422, call
        created = await api.post("/v1/jobs", json=body, headers={"idempotency-key": "pause-1"})
        assert created.status_code == 422


async def test_a_batch_sent_again_is_answered_as_before_and_another_under_its_key_is_422(
    live: FastAPI, second: FastAPI
) -> None:
    job = {"schedule": FAR, "target": {"type": "http", "url": "https://example.com/"}}
    headers = {"idempotency-key": "batch-1"}
    async with client_of(live, "keyed-batches") as api, client_of(second, "keyed-batches") as other:
        first = await api.post("/v1/jobs/batch", json={"jobs": [job, job, {}]}, headers=headers)
        assert [result["status"] for result in first.json()["results"]] == [201, 201, 422]
        again = await other.post("/v1/jobs/batch", json={"jobs": [job, job, {}]}, headers=headers)
        assert again.json() == first.json()
        assert (await other.post("/v1/jobs/batch", json={"jobs": [job]}, headers=headers)).status_code == 422
        assert len((await api.get("/v1/jobs")).json()["items"]) == 2
