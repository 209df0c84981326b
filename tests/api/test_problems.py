"""Whatever is wrong with a request, the answer is a problem document that says how to mend it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.app import create_app
from api.body import MAX_DEPTH
from api.problems import PROBLEM_MEDIA_TYPE, Kind
from infra.temporal.errors import SetupError
from tests.api.conftest import client_of, settings_in, started
from tests.api.tokens import bearer

TARGET = {"type": "http", "url": "https://example.com/hook"}
JOB = {"schedule": {"cron": "0 9 * * *"}, "target": TARGET}


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM_MEDIA_TYPE
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["type"] in {kind.uri for kind in Kind}
    assert document["title"]
    assert document["detail"]
    assert all(entry["detail"] for entry in document.get("errors", []))
    if status in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    return document


CALLS = [
    ("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs/x"), ("PUT", "/v1/jobs/x"),
    ("PATCH", "/v1/jobs/x"), ("DELETE", "/v1/jobs/x"), ("POST", "/v1/jobs/x/pause"),
    ("POST", "/v1/jobs/x/resume"), ("POST", "/v1/jobs/x/trigger"), ("GET", "/v1/jobs/x/executions"),
    ("POST", "/v1/jobs/batch"), ("GET", "/v1/executions"), ("GET", "/v1/executions/x"),
    ("POST", "/v1/schedules/preview"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), CALLS, ids=[f"{m} {p}" for m, p in CALLS])
async def test_every_call_asks_for_a_token_and_its_scope(offline: FastAPI, method: str, path: str) -> None:
    async with client_of(offline) as client:
        client.headers.pop("authorization")
        answer = await client.request(method, path, content=b"{}")
        assert_problem(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Bearer")
    read = method == "GET" or path == "/v1/schedules/preview"
    lacking, wanted = ("jobs:write", "jobs:read") if read else ("jobs:read", "jobs:write")
    async with client_of(offline, scope=lacking) as client:
        problem = assert_problem(await client.request(method, path, content=b"{}"), 403)
        assert wanted in problem["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/jobs/", 404),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/jobs/No-Such-Id", 404),
        ("GET", "/v1/jobs/a%00b", 404),
        ("GET", "/v1/jobs/a~2", 404),
        ("GET", "/v1/jobs/a%0A", 404),
        ("GET", "/v1/jobs/" + "a" * 5000, 404),
        ("GET", "/v1/executions/%FF", 404),
        ("GET", "/v1/executions/" + "A" * 999, 404),
        ("PUT", "/v1/jobs", 405),
        ("DELETE", "/v1/executions/x", 405),
        ("BREW", "/v1/jobs", 405),
        ("POST", "/v1/jobs/x", 405),
        ("BREW", "/v1/jobs/batch", 405),
    ],
)
async def test_addresses_that_are_not_there(
    offline_client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await offline_client.request(method, path)
    assert_problem(answer, status)
    if status == 405:
        assert answer.headers["allow"] == {
            "/v1/jobs": "GET, POST", "/v1/executions/x": "GET", "/v1/jobs/x": "DELETE, GET, PATCH, PUT",
            "/v1/jobs/batch": "POST",
        }[path]  # fmt: skip


QUERIES = [
    "label==", "label==x", "label=a+b=c", "group=No+Group", "q=a%00b", "label=a%00=b", "target=%00",
    "cursor=garbage", "cursor=", "cursor=W10", "limit=0", "limit=201", "limit=x", "limit=1e3", "sort=name",
    "status=gone", "label=team", "nonsense=1", "outcome=great", "q=" + "x" * 201, "cursor=" + "x" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
async def test_query_parameters_that_are_refused(offline_client: httpx.AsyncClient, query: str) -> None:
    problem = assert_problem(await offline_client.get(f"/v1/jobs?{query}"), 422)
    assert problem["errors"][0]["parameter"] == query.partition("=")[0]


@pytest.mark.parametrize("query", ["q=%FF", "label=a=", "group=nobody"])
async def test_query_parameters_that_find_nothing(offline_client: httpx.AsyncClient, query: str) -> None:
    answer = await offline_client.get(f"/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["items"]) == (200, [])


LATER_FIRST = "since=2026-12-02T00:00:00Z&until=2026-12-01T00:00:00Z"
NEVER = {
    LATER_FIRST: ("executions", "jobs/a/executions", "dead-letters", "audit"),
    "since=2026-12-01T00:00:00Z&until=2026-12-01T00:59:59%2B01:00": ("executions", "audit"),
    "job=No+Such+Id": ("executions", "dead-letters", "audit", "events"),
    "job=acme/report": ("executions", "dead-letters", "audit", "events"),
    "job=report~2": ("executions", "dead-letters", "audit", "events"),
    "job=": ("executions", "dead-letters", "audit", "events"),
    "label=team=x&label=team=y": ("jobs", "executions"),
}
"""Filters that nothing can match, whatever there is; each with the lists that have them."""


@pytest.mark.parametrize(
    ("path", "query"), [(path, query) for query, paths in NEVER.items() for path in paths]
)
async def test_a_filter_that_nothing_can_match_is_refused(
    offline_client: httpx.AsyncClient, path: str, query: str
) -> None:
    """An empty list would be taken for an answer."""
    problem = assert_problem(await offline_client.get(f"/v1/{path}?{query}"), 422)
    [error] = problem["errors"]
    assert error["parameter"] == ("until" if "until" in query else query.partition("=")[0])
    assert "; " in error["detail"], "it says what to do instead"


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (
            "dead-letters/redrive",
            {"since": "2026-12-02T00:00:00Z", "until": "2026-12-01T00:00:00Z"},
            "/until",
        ),
        ("dead-letters/redrive", {"job": "acme/report"}, "/job"),
        ("jobs/bulk", {"action": "delete", "filter": {"label": ["team=x", "team=y"]}}, "/filter/label"),
        ("jobs/bulk", {"action": "delete", "filter": {"label": "=x"}}, "/filter/label"),
    ],
)
async def test_many_are_not_changed_by_a_filter_that_nothing_can_match(
    offline_client: httpx.AsyncClient, path: str, body: dict[str, Any], pointer: str
) -> None:
    problem = assert_problem(await offline_client.post(f"/v1/{path}", json=body), 422)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.parametrize("query", ["since=2026-12-01T00:00:00Z&until=2026-12-01T00:00:00Z", "job=nobody"])
@pytest.mark.parametrize("path", ["executions", "dead-letters", "audit"])
async def test_a_filter_that_happens_to_match_nothing_is_answered(
    offline_client: httpx.AsyncClient, path: str, query: str
) -> None:
    answer = await offline_client.get(f"/v1/{path}?{query}")
    assert (answer.status_code, answer.json()["items"]) == (200, [])


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


HEADERS = [
    ("POST", "/v1/jobs", {"idempotency-key": ""}),
    ("POST", "/v1/jobs", {"idempotency-key": "x" * 256}),
    ("POST", "/v1/jobs", {"idempotency-key": "\xe9"}),
    ("PUT", "/v1/jobs/x", {"if-none-match": '"3"'}),
    ("PUT", "/v1/jobs/x", {"if-match": "three"}),
]


@pytest.mark.parametrize(("method", "path", "headers"), HEADERS)
async def test_headers_that_are_refused(
    offline_client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]
) -> None:
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    problem = assert_problem(await offline_client.request(method, path, json=JOB, headers=sent), 422)
    assert problem["errors"][0]["parameter"].lower() in headers


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "id", "paused", "description", "labels", "priority", "schedule", "spread", "starts_at", "ends_at",
    "max_runs", "except", "delete_after", "target", "timeout", "max_duration", "heartbeat_timeout",
    "max_reaps", "completion", "retry", "concurrency", "catch_up", "alerts", "pause_after",
]  # fmt: skip
SCHEDULE = st.fixed_dictionaries(
    {},
    optional={
        name: any_json
        | st.sampled_from(
            ["0 9 * * *", "PT5S", "2030-01-01T00:00:00", "9000-12-31T23:59:59-14:00", "1970-01-01T00:00:00Z",
             "UTC", "Europe/London", 1e11, -1, 0.1, "P999999999D", "both", "skip"]
        )
        for name in ("cron", "every", "anchor", "at", "in", "timezone", "gap", "fold")
    },
)  # fmt: skip
ODD = st.sampled_from(
    [
        "PT5S",
        1e11,
        1e308,
        -1,
        "P99999999Y",
        "9000-12-31T23:59:59-14:00",
        "2030-01-01T00:00:00Z",
        2**70,
        "☕",
        "",
    ]
)
BODIES = st.fixed_dictionaries(
    {"schedule": SCHEDULE, "target": any_json | st.just(TARGET)},
    optional={name: any_json | ODD for name in FIELDS if name not in ("schedule", "target")},
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES, method=st.sampled_from(["POST /v1/jobs", "PUT /v1/jobs/x", "POST /v1/schedules/preview"]))
async def test_no_document_is_worse_than_a_problem(
    offline_client: httpx.AsyncClient, body: dict[str, Any], method: str
) -> None:
    verb, _, path = method.partition(" ")
    raw = json.dumps(body).encode()
    answer = await offline_client.request(
        verb, path, content=raw, headers={"content-type": "application/json"}
    )
    if answer.status_code != 200:
        assert answer.status_code in (422, 503), answer.text
        assert_problem(answer, answer.status_code)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(
        st.sampled_from(
            ["q", "label", "status", "target", "outcome", "sort", "limit", "cursor", "since", "until"]
        ),
        max_size=3,
    ),
    value=st.text(max_size=30)
    | st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "5"]),
    path=st.sampled_from(["/v1/jobs", "/v1/executions", "/v1/jobs/x/executions", "/v1/executions/x"]),
)
async def test_no_query_is_worse_than_a_problem(
    offline_client: httpx.AsyncClient, names: list[str], value: str, path: str
) -> None:
    query = urlencode([(name, value) for name in names], errors="replace")
    answer = await offline_client.get(f"{path}?{query}")
    assert answer.status_code in (200, 404, 422), answer.text


async def test_a_fault_of_ours_is_a_500_without_its_text(tmp_path: Any, caplog: Any) -> None:
    app = create_app(settings_in(tmp_path))

    @app.get("/broken", include_in_schema=False)
    async def broken() -> None:
        raise KeyError("the password is hunter2")

    async with started(app), client_of(app) as client:
        problem = assert_problem(await client.get("/broken"), 500)
    assert "hunter2" not in json.dumps(problem)
    assert "hunter2" in caplog.text


def test_without_a_secret_the_application_is_not_made(tmp_path: Any) -> None:
    with pytest.raises(SetupError, match="CARILLON_JWT_SECRET"):
        create_app(settings_in(tmp_path, jwt_secret=""))


async def test_a_token_of_another_installation_is_refused(offline: FastAPI) -> None:
    async with client_of(offline) as client:
        client.headers.update(bearer(secret="quite another secret of more than thirty-two bytes"))
        assert_problem(await client.get("/v1/jobs"), 401)
