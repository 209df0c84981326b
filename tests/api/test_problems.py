"""Whatever is wrong with a request, the answer is a problem document that says how to mend it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.problems import PROBLEM_MEDIA_TYPE, Kind
from infra.temporal.errors import SetupError
from tests.api.conftest import client_of, settings_in, started
from tests.api.tokens import bearer

JOB = {"schedule": {"cron": "0 9 * * *"}, "target": {"type": "http", "url": "https://example.com/hook"}}


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
