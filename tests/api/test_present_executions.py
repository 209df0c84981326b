"""Executions that wait under a key the history knows, and those that are alive when pages are turned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.jobs.executions import as_present
from tests.api.conftest import client_of
from tests.api.eventually import eventually
from tests.api.sink import Sink
from tests.workflows.domain.states import NOON
from workflows.contracts.records import ExecutionRow

FAR = {"cron": "0 9 1 1 *"}


@pytest.fixture
async def own(live: FastAPI, worker: None) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(live, "present") as client:
        yield client


async def keys(api: httpx.AsyncClient, path: str) -> list[str]:
    """Those of all pages, one execution a page and those that come with the first."""
    found, cursor = [], ""
    while cursor is not None:
        page = (await api.get(f"{path}?limit=1" + (f"&cursor={cursor}" if cursor else ""))).json()
        found += [item["key"] for item in page["items"]]
        cursor = page["next_cursor"]
    return found


async def test_what_is_alive_comes_once_whatever_the_page(own: httpx.AsyncClient, sink: Sink) -> None:
    sink.released.clear()
    body = {"id": "beside", "schedule": FAR, "concurrency": {"policy": "allow"}}
    await own.post("/v1/jobs", json={**body, "target": sink.target("/slow/beside")})
    asked = [(await own.post("/v1/jobs/beside/trigger")).json()["key"] for _ in range(3)]
    path = "/v1/jobs/beside/executions"
    await eventually(own, path, lambda p: [one["outcome"] for one in p["items"]] == ["running"] * 3)
    await eventually(own, "/v1/executions?job=beside&limit=3", lambda p: len(p["items"]) == 3)
    assert sorted(await keys(own, path)) == sorted(asked)
    sink.released.set()


async def test_a_redrive_that_waits_is_alive(own: httpx.AsyncClient, sink: Sink) -> None:
    """Wherever it is read, under every filter, and as it is cancelled; until it is sent it has no new row."""
    body = {"id": "line", "schedule": FAR, "retry": {"max_attempts": 1}}
    sink.failing.add("/line")
    await own.post("/v1/jobs", json={**body, "target": sink.target("/line")})
    dead = (await own.post("/v1/jobs/line/trigger")).json()
    await eventually(own, "/v1/dead-letters", lambda p: [one["id"] for one in p["items"]] == [dead["id"]])
    sink.failing.clear()
    sink.released.clear()
    await own.patch("/v1/jobs/line", json={"target": sink.target("/slow/line")})
    before_it = (await own.post("/v1/jobs/line/trigger")).json()
    await sink.delivery("/slow/line")
    assert (await own.post(f"/v1/dead-letters/{dead['id']}/redrive")).status_code == 202

    one, path = f"/v1/executions/{dead['id']}", "/v1/jobs/line/executions"
    read = (await own.get(one)).json()
    assert [read[name] for name in ("outcome", "trigger", "ended_at", "reason")] == [
        "queued", "redrive", None, None
    ]  # fmt: skip
    assert [attempt["attempt"] for attempt in read["attempts"]] == [1]
    await eventually(own, path, lambda p: len(p["items"]) == 2)
    assert read in (await own.get(path)).json()["items"]
    assert sorted(await keys(own, path)) == sorted([dead["key"], before_it["key"]])
    for query, expected in (
        ("outcome=queued", [dead["key"]]),
        ("outcome=dead_lettered", []),
        ("trigger=redrive", [dead["key"]]),
        ("trigger=manual", [before_it["key"]]),
    ):
        page = (await own.get(f"{path}?{query}")).json()
        assert [item["key"] for item in page["items"]] == expected, query

    cancelled = (await own.post(f"{one}/cancel")).json()
    assert (cancelled["outcome"], cancelled["reason"], cancelled["trigger"]) == (
        "cancelled", "asked", "redrive"
    )  # fmt: skip
    await eventually(own, one, lambda e: e["outcome"] == "cancelled")
    sink.released.set()


def row(outcome: str, fires: float, ended: float | None = None, trigger: str = "redrive") -> ExecutionRow:
    """``fires`` and ``ended``: minutes past noon."""
    end = None if ended is None else NOON + timedelta(minutes=ended)
    fields: dict[str, Any] = {"outcome": outcome, "ended_at": end, "trigger": trigger, "reason": None}
    at = NOON + timedelta(minutes=fires)
    return ExecutionRow(key="acme/a:manual-x", scheduled_time=NOON, fires_at=at, seq=0, revision=2, **fields)


@pytest.mark.parametrize(
    ("stored", "alive", "expected"),
    [
        pytest.param(row("dead_lettered", 0, 1), None, "dead_lettered", id="not-alive"),
        pytest.param(row("dead_lettered", 0, 1), row("queued", 2), "queued", id="waits-anew"),
        pytest.param(row("dead_lettered", 0, 1), row("scheduled", 2), "scheduled", id="begins-anew"),
        pytest.param(row("cancelled", 0, 1), row("queued", 1), "queued", id="within-an-instant"),
        pytest.param(row("succeeded", 2, 3), row("running", 2), "succeeded", id="its-own-end"),
        pytest.param(row("running", 2), row("running", 2), "running", id="both-say-so"),
        pytest.param(row("running", 2), row("scheduled", 2), "running", id="beside-the-job"),
        pytest.param(row("retrying", 2), row("queued", 4), "queued", id="a-retry-waits-for-its-group"),
    ],
)
def test_the_later_word_counts(stored: ExecutionRow, alive: ExecutionRow | None, expected: str) -> None:
    present = as_present(stored, alive)
    assert present.outcome == expected
    assert present is stored or present.ended_at is None
