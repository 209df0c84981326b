"""Concurrency groups while no worker is there: lists answer, changes say in time that they cannot."""

from __future__ import annotations

import time

import httpx
import pytest

from api import groups as api_groups
from tests.api.sink import Sink


async def test_a_group_is_listed_and_shown_as_stale(
    api: httpx.AsyncClient, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {
        "id": "waits",
        "schedule": {"every": "PT1H"},
        "target": sink.target("/waits"),
        "concurrency": {"group": "quiet"},
    }
    assert (await api.post("/v1/jobs", json=job)).status_code == 201
    assert api_groups.ANSWER_WITHIN_S + 1.5 < 10, "with the look into the index before it"
    monkeypatch.setattr(api_groups, "ANSWER_WITHIN_S", 1.0)
    began = time.monotonic()
    put = await api.put("/v1/groups/quiet", json={"limit": 2})
    assert (put.status_code, put.json()["type"]) == (503, "urn:carillon:problem:no-answer")
    assert time.monotonic() - began < 5
    listed = [one for one in (await api.get("/v1/groups")).json()["items"] if one["name"] == "quiet"]
    assert listed == [{"name": "quiet", "limit": 1, "member_count": 1}]
    found = (await api.get("/v1/groups/quiet")).json()
    assert (found["stale"], found["limit"], found["holders"], found["members"]) == (True, 1, None, ["waits"])
