"""Bodies that cannot be read, and jobs that cannot be: each with the place of the fault."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.body import MAX_DEPTH
from api.problems import Kind
from tests.api.test_problems import assert_problem

TARGET = {"type": "http", "url": "https://example.com/hook"}
JOB = {"schedule": {"cron": "0 9 * * *"}, "target": TARGET}


RAW = {
    "malformed": (b'{"schedule": ', 422),
    "not an object": (b"[]", 422),
    "invalid UTF-8": (b'{"a": "\xff\xfe"}', 422),
    "NaN": (b'{"priority": NaN}', 422),
    "too deep": (b'{"a":' * (MAX_DEPTH + 2) + b"1" + b"}" * (MAX_DEPTH + 2), 422),
    "too large": (b'{"description": "' + b"x" * 70_000 + b'"}', 413),
    "empty": (b"", 422),
}


@pytest.mark.parametrize(("raw", "status"), RAW.values(), ids=RAW.keys())
async def test_bodies_that_cannot_be_read(offline_client: httpx.AsyncClient, raw: bytes, status: int) -> None:
    headers = {"content-type": "application/json"}
    assert_problem(await offline_client.post("/v1/jobs", content=raw, headers=headers), status)


async def test_another_media_type_is_415(offline_client: httpx.AsyncClient) -> None:
    assert_problem(await offline_client.post("/v1/jobs", data={"a": "b"}), 415)
    merge = {"content-type": "application/merge-patch+json"}
    assert_problem(await offline_client.post("/v1/jobs", content=b"{}", headers=merge), 415)


def job(**more: Any) -> dict[str, Any]:
    return JOB | more


def scheduled(**schedule: Any) -> dict[str, Any]:
    return JOB | {"schedule": schedule}


def aimed(**target: Any) -> dict[str, Any]:
    return JOB | {"target": TARGET | target}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no schedule": ({"target": TARGET}, "/schedule"),
    "no target": ({"schedule": {"every": 5}}, "/target"),
    "empty schedule": (scheduled(), "/schedule"),
    "two kinds of schedule": (scheduled(cron="0 9 * * *", every="PT5M"), "/schedule"),
    "bad minute": (scheduled(cron="61 * * * *"), "/schedule/cron"),
    "a day that never is": (scheduled(cron="0 0 30 2 *"), "/schedule/cron"),
    "six fields": (scheduled(cron="* * * * * *"), "/schedule/cron"),
    "too often": (scheduled(every="PT0S"), "/schedule/every"),
    "naive time": (scheduled(at="2030-01-01T00:00:00"), "/schedule/at"),
    "a number as an instant": (scheduled(at=1893456000), "/schedule/at"),
    "no such zone": (scheduled(cron="0 9 * * *", timezone="Mars/Base"), "/schedule/timezone"),
    "anchor far away": (scheduled(every=5, anchor="9999-12-31T23:59:59-14:00"), "/schedule/anchor"),
    "endless": (scheduled(**{"in": "P999999999D"}), "/schedule/in"),
    "id in capitals": (job(id="Job"), "/id"),
    "id with a line break": (job(id="job\n"), "/id"),
    "id that is no text": (job(id=7), "/id"),
    "unknown field": (job(shedule={}), "/shedule"),
    "unknown inner field": (job(retry={"atempts": 3}), "/retry/atempts"),
    "python's name of a field": (job(except_=[]), "/except_"),
    "read-only field": (job(status="paused"), "/status"),
    "priority as a text": (job(priority="3"), "/priority"),
    "priority out of range": (job(priority=6), "/priority"),
    "true as a number": (job(max_runs=True), "/max_runs"),
    "label that is no text": (job(labels={"a": 1}), "/labels/a"),
    "label without a name": (job(labels={"": "x"}), "/labels"),
    "too many labels": (job(labels={f"l{n}": "" for n in range(65)}), "/labels"),
    "heartbeat too short": (job(heartbeat_timeout="PT1S"), "/heartbeat_timeout"),
    "kept for ever and a day": (job(delete_after="P999999999D"), "/delete_after"),
    "a window of ages": (job(catch_up={"window": "P999999999D"}), "/catch_up/window"),
    "duration in words": (job(timeout="5 minutes"), "/timeout"),
    "bad success rule": (aimed(success=["6xx"]), "/target/success/0"),
    "userinfo in the address": (aimed(url="https://user:pw@example.com/"), "/target/url"),
    "another scheme": (aimed(url="ftp://example.com/"), "/target/url"),
    "address of the cloud's metadata": (aimed(url="http://169.254.169.254/latest"), "/target/url"),
    "IPv4 inside IPv6": (aimed(url="http://[::ffff:169.254.169.254]/"), "/target/url"),
    "header of ours": (aimed(headers={"Carillon-Job": "x"}), "/target/headers/Carillon-Job"),
    "header with a line break": (aimed(headers={"x": "a\r\nb"}), "/target/headers/x"),
    "ends before it starts": (
        job(starts_at="2031-01-01T00:00:00Z", ends_at="2030-01-01T00:00:00Z"), "/ends_at",
    ),
    "exception of two forms": (job(**{"except": [{"date": "2030-01-01", "cron": "* * * * *"}]}), "/except/0"),
    "queue target": (job(target={"type": "queue", "broker": "b", "destination": "d"}), "/target/type"),
    "unknown target": (aimed(type="carrier-pigeon"), "/target/type"),
    "named secret": (aimed(headers={"authorization": {"secret": "x"}}), "/target/headers/authorization"),
    "an answer that takes longer than six hours": (job(timeout="PT7H"), "/timeout"),
    "an attempt longer than its run": (job(timeout="P2D", completion="callback"), "/timeout"),
    "an attempt of more than 30 days": (
        job(timeout="P31D", max_duration="P30D", completion="callback"),
        "/timeout",
    ),
    "never a failure": (job(pause_after=0), "/pause_after"),
    "no time without success": (job(alerts={"no_success_for": 0}), "/alerts/no_success_for"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "pointer"), REFUSED.values(), ids=REFUSED.keys())
async def test_definitions_that_are_refused_with_a_pointer(
    offline_client: httpx.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    problem = assert_problem(await offline_client.post("/v1/jobs", json=body), 422)
    assert pointer in [entry["pointer"] for entry in problem["errors"]]


SCHEDULES = {name: body["schedule"] for name, (body, at) in REFUSED.items() if at.startswith("/schedule/")}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
async def test_the_preview_gives_the_same_verdict_for_the_same_reason(
    offline_client: httpx.AsyncClient, schedule: dict[str, Any]
) -> None:
    created = await offline_client.post("/v1/jobs", json=JOB | {"schedule": schedule})
    previewed = await offline_client.post("/v1/schedules/preview", json={"schedule": schedule})
    assert assert_problem(previewed, 422)["errors"] == assert_problem(created, 422)["errors"]


async def test_every_fault_is_named_at_once(offline_client: httpx.AsyncClient) -> None:
    body = {
        "schedule": {"cron": "61 * * * *"},
        "target": {"url": "http://10.0.0.1/", "headers": {"host": "x"}},
    }
    problem = assert_problem(await offline_client.post("/v1/jobs", json=body), 422)
    assert [entry["pointer"] for entry in problem["errors"]] == [
        "/schedule/cron", "/target/url", "/target/headers/host",
    ]  # fmt: skip


ACCEPTED: dict[str, dict[str, Any]] = {
    "seconds as numbers": job(timeout=5, retry={"initial_interval": 0.5}),
    "awkward header values": aimed(headers={"X-Time": "1:2:3", "X-Empty": "", "X-Long": "v" * 1024}),
    "an answer's defaults": job(
        alerts={"consecutive_skips": 3, "consecutive_failures": 2, "no_success_for": "P1D"},
        pause_after=3,
        concurrency={"policy": "forbid", "group": None},
    ),
    "a list of expressions": scheduled(cron=["0 9 * * *", "30 17 * * fri"]),
    "a large number in a body": aimed(body={"n": 2**70}),
    "an emoji": job(description="☕"),
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_definitions_that_pass_reach_temporal_which_is_away(
    offline_client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    problem = assert_problem(await offline_client.post("/v1/jobs", json=body), 503)
    assert problem["type"] == Kind.SCHEDULER_UNAVAILABLE.uri
    assert "nothing was done" in problem["detail"]
    assert (await offline_client.get("/v1/jobs")).json()["items"] == []


async def test_a_refused_creation_leaves_its_id_free(offline_client: httpx.AsyncClient) -> None:
    for priority in (1, 2):
        body = job(id="freed", priority=priority)
        assert_problem(await offline_client.post("/v1/jobs", json=body), 503)


BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "no jobs": ({}, "/jobs"),
    "an empty list": ({"jobs": []}, "/jobs"),
    "too many": ({"jobs": [JOB] * 201}, "/jobs"),
    "not jobs": ({"jobs": [JOB, 1]}, "/jobs/1"),
    "something else": ({"jobs": [JOB], "dry_run": True}, "/dry_run"),
}


@pytest.mark.parametrize(("body", "pointer"), BATCHES.values(), ids=BATCHES.keys())
async def test_batches_that_are_refused(
    offline_client: httpx.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    problem = assert_problem(await offline_client.post("/v1/jobs/batch", json=body), 422)
    assert problem["errors"][0]["pointer"] == pointer
