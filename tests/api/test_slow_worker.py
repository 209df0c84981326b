"""A worker that is slow to answer: a look at a job gives up soon, a change waits for it."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI

from api.jobs import changes, reading
from infra.settings import Settings
from tests.api.conftest import client_of, working
from tests.api.eventually import eventually
from tests.api.sink import Sink

pytestmark = pytest.mark.usefixtures("undisturbed")


async def test_a_change_that_begins_with_a_look_at_the_job_waits_longer_than_the_look_alone(
    live: FastAPI,
    live_settings: Settings,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "ANSWER_WITHIN_S", 60)
    job = "/v1/jobs/hourly"
    async with client_of(live, "slow-worker") as api:
        made = {"id": "hourly", "schedule": {"every": "PT1H"}, "target": sink.target("/hourly")}
        async with working(live_settings):
            assert (await api.post("/v1/jobs", json=made)).status_code == 201
            await eventually(api, job, lambda found: not found["stale"])
        change = asyncio.create_task(api.patch(job, json={"description": "patched"}))
        await asyncio.sleep(reading.VIEW_WITHIN.total_seconds() + 1)
        assert not change.done(), change.result().text
        async with working(live_settings):
            answer = await change
        assert (answer.status_code, answer.json()["description"]) == (200, "patched"), answer.text
