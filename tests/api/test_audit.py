"""The audit log over HTTP: every accepted change, by whom, and nothing that was not one."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.audit import DROPPED, Audit
from api.auth.principal import Principal
from api.clock import random_name
from api.routers.audit import AuditPage
from infra.database.audit import AuditEntry, AuditLog
from infra.database.errors import DatabaseRejected, DatabaseUnavailable
from tests.api.conftest import client_of
from tests.api.sink import Sink

FAR = {"cron": "0 9 1 1 *"}
ANN = Principal("acme", "ann", frozenset({"jobs:write"}))


async def entries(api: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"/v1/audit?{query}")
    assert answer.status_code == 200, answer.text
    AuditPage.model_validate_json(answer.text)
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.mark.usefixtures("worker")
async def test_every_accepted_change_is_noted_once_with_its_revisions(live: FastAPI, sink: Sink) -> None:
    body = {"id": "noted", "schedule": FAR, "target": sink.target("/noted")}
    async with client_of(live, "audited") as api:
        created = await api.post("/v1/jobs", json=body, headers={"x-request-id": "mine-1"})
        assert created.headers["x-request-id"] == "mine-1"
        await api.post("/v1/jobs", json=body)
        await api.put("/v1/jobs/noted", json={**body, "priority": 1})
        await api.patch("/v1/jobs/noted", json={"priority": 1})
        await api.patch("/v1/jobs/noted", json={"priority": 2})
        await api.patch("/v1/jobs/noted", json={"priority": 9})
        paused = await api.post("/v1/jobs/noted/pause", headers={"idempotency-key": "p"})
        await api.post("/v1/jobs/noted/pause", headers={"idempotency-key": "p"})
        await api.post("/v1/jobs/noted/resume")
        await api.post("/v1/jobs/noted/trigger", json={"request": "r"})
        await api.post("/v1/jobs/noted/trigger", json={"request": "r"})
        await api.post("/v1/jobs/batch", json={"jobs": [{**body, "id": "also"}, {**body, "id": "noted"}]})
        await api.delete("/v1/jobs/noted")
        told = [
            (entry["operation"], entry["job"], entry["from_revision"], entry["to_revision"])
            for entry in await entries(api)
        ]
        assert told == [
            ("delete", "noted", 3, None),
            ("create", "also", None, 1),
            ("trigger", "noted", 3, 3),
            ("resume", "noted", 3, 3),
            ("pause", "noted", 3, 3),
            ("patch", "noted", 2, 3),
            ("replace", "noted", 1, 2),
            ("create", "noted", None, 1),
        ]
        first = (await entries(api, "job=noted"))[-1]
        assert (first["by"], first["request_id"]) == ("tester", "mine-1")
        [pause] = [entry for entry in await entries(api) if entry["operation"] == "pause"]
        assert pause["request_id"] == paused.headers["x-request-id"]
        assert [entry["job"] for entry in await entries(api, "job=also")] == ["also"]
        assert await entries(api, "by=somebody") == []
        assert await entries(api, f"since={first['at']}&job=noted&limit=200") == await entries(
            api, "job=noted"
        )
        assert await entries(api, f"until={first['at']}") == []
        page = (await api.get("/v1/audit?limit=3")).json()
        rest = await entries(api, f"cursor={page['next_cursor']}")
        assert page["items"] + rest == await entries(api)
    async with client_of(live, "other-audited") as other:
        assert await entries(other) == []


@pytest.mark.parametrize("query", ["cursor=x", "cursor=", "since=1", "limit=0", "who=x", "until=yesterday"])
async def test_a_bad_question_is_422(offline_client: httpx.AsyncClient, query: str) -> None:
    answer = await offline_client.get(f"/v1/audit?{query}")
    assert answer.status_code == 422


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "é"])
async def test_a_request_id_of_no_sound_form_is_replaced(
    offline_client: httpx.AsyncClient, given: str
) -> None:
    answer = await offline_client.get("/healthz", headers={b"x-request-id": given.encode()})
    assert answer.headers["x-request-id"].isalnum()
    assert answer.headers["x-request-id"] != given


class Table(AuditLog):
    """Keeps entries in memory; is away, or refuses, as a test says."""

    def __init__(self) -> None:
        self.stored: dict[str, AuditEntry] = {}
        self.away = False
        self.refused = ""
        self.tries = 0

    async def write(self, entries: Any) -> None:
        self.tries += 1
        if self.away:
            raise DatabaseUnavailable("away")
        if any(entry.job == self.refused for entry in entries):
            raise DatabaseRejected("refused")
        self.stored |= {entry.id: entry for entry in entries}


def audit_over(table: Table, capacity: int = 100) -> Audit:
    return Audit(table, lambda: datetime.now(UTC), random_name, capacity=capacity)


async def test_a_change_waits_for_no_database_and_its_entry_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call waits a moment; while it is known to be away, none does."""
    monkeypatch.setattr("api.audit.WAIT_S", 0.05)
    table = Table()
    table.away = True
    audit = audit_over(table)
    running = asyncio.create_task(audit.run())
    async with asyncio.timeout(30):
        for number in range(50):
            await audit.note(ANN, "patch", f"job-{number}", 1, 2)
        assert table.stored == {}
        table.away = False
        while len(table.stored) < 50:
            await asyncio.sleep(0.01)
    assert {entry.job for entry in table.stored.values()} == {f"job-{n}" for n in range(50)}
    running.cancel()


async def test_what_cannot_be_kept_is_in_the_log_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.audit.WAIT_S", 0.0)
    table = Table()
    table.away = True
    audit = audit_over(table, capacity=2)
    before = DROPPED._value.get()
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            await audit.note(ANN, "patch", f"job-{number}", 1, 2)
        assert "job-2" in caplog.text
        assert "job-1" not in caplog.text
        await audit.close()
    assert "job-0" in caplog.text
    assert "job-1" in caplog.text
    assert DROPPED._value.get() - before == 3


async def test_an_entry_that_the_database_refuses_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.refused = "poison"
    audit = audit_over(table)
    running = asyncio.create_task(audit.run())
    async with asyncio.timeout(30):
        await asyncio.gather(*(audit.note(ANN, "patch", job, 1, 2) for job in ("a", "poison", "b")))
    assert {entry.job for entry in table.stored.values()} == {"a", "b"}
    assert "poison" in caplog.text
    running.cancel()


async def test_what_is_noted_last_is_written_before_the_end() -> None:
    table = Table()
    audit = audit_over(table, capacity=1000)
    noting = [asyncio.create_task(audit.note(ANN, "patch", f"job-{n}", 1, 2)) for n in range(300)]
    await asyncio.sleep(0)
    await audit.close()
    await asyncio.gather(*noting)
    assert len(table.stored) == 300
    assert table.tries == 2


async def test_a_repeat_of_one_change_is_one_entry() -> None:
    table = Table()
    audit = audit_over(table)
    running = asyncio.create_task(audit.run())
    for _ in range(2):
        await audit.note(ANN, "pause", "a", 1, 1, change="x")
        await audit.note(ANN, "pause", "b", 1, 1, change="x")
    assert len(table.stored) == 2
    running.cancel()
