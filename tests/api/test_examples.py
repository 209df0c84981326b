"""Everything the document shows is true: requests are taken by the service, answers have their shape."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
from fastapi import FastAPI

from api.app import create_app
from tests.api.conftest import client_of, settings_in
from tests.api.eventually import eventually
from tests.api.sink import Sink

pytestmark = pytest.mark.usefixtures("worker")

DOCUMENT: dict[str, Any] = json.loads(json.dumps(create_app(settings_in(Path("unused"))).openapi()))
NINE_ON_NEW_YEAR = {"cron": "0 9 1 1 *"}
"""When the examples of skips have their occurrence."""
EXPECTED = {
    "createJob": 201, "triggerJob": 202, "changeJobs": 202, "backfillJob": 202,
    "rerunExecution": 202, "redriveDeadLetter": 202, "redriveDeadLetters": 202,
    "heartbeatCallback": 204, "completeCallback": 204, "failCallback": 204,
}  # fmt: skip
_numbers = itertools.count(1)


def requests() -> Iterator[tuple[str, str, str, str, Any]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            content = operation.get("requestBody", {}).get("content", {})
            for media_type, media in content.items():
                for name, example in media["examples"].items():
                    yield f"{operation['operationId']}-{name}", method, path, media_type, example["value"]


CASES = {name + media: case for name, *case in requests() for media in [f"-{case[2].partition('/')[2]}"]}


@pytest.fixture
async def tenant(live: FastAPI) -> tuple[str, httpx.AsyncClient]:
    name = f"examples-{next(_numbers)}"
    return name, client_of(live, name, "jobs:read jobs:write tenant:write")


async def accepted(api: httpx.AsyncClient, sink: Sink, path: str) -> str:
    """The callback token of a run that its target has taken over."""
    body = {
        "id": "accepted",
        "schedule": NINE_ON_NEW_YEAR,
        "target": sink.target(path),
        "completion": "callback",
    }
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    assert (await api.post("/v1/jobs/accepted/trigger")).status_code == 202
    return (await sink.delivery(path)).headers["carillon-callback"].rpartition("/")[2]


async def failed(api: httpx.AsyncClient, sink: Sink, path: str) -> str:
    """The id of a dead letter."""
    sink.failing.add(path)
    body = {
        "id": "failed",
        "schedule": NINE_ON_NEW_YEAR,
        "target": sink.target(path),
        "retry": {"max_attempts": 1},
    }
    assert (await api.post("/v1/jobs", json=body)).status_code == 201
    assert (await api.post("/v1/jobs/failed/trigger")).status_code == 202
    page = await eventually(api, "/v1/dead-letters", lambda p: p["items"])
    found: str = page["items"][0]["id"]
    return found


@pytest.mark.parametrize("name", CASES)
async def test_an_example_of_a_request_is_taken(
    name: str, tenant: tuple[str, httpx.AsyncClient], sink: Sink
) -> None:
    method, path, media_type, value = CASES[name]
    sink.released.clear()
    async with tenant[1] as api:
        body = {"id": "subject", "schedule": NINE_ON_NEW_YEAR, "target": sink.target(f"/slow/{tenant[0]}")}
        assert (await api.post("/v1/jobs", json=body)).status_code == 201
        if "{execution_id}" in path:
            run = await api.post("/v1/jobs/subject/trigger")
            path = path.replace("{execution_id}", run.json()["id"])
            if path.endswith("/rerun"):
                sink.released.set()
                await eventually(api, path.removesuffix("/rerun"), lambda e: e["outcome"] == "succeeded")
        if "{letter_id}" in path:
            path = path.replace("{letter_id}", await failed(api, sink, f"/failed/{tenant[0]}"))
        if "{token}" in path:
            path = path.replace("{token}", await accepted(api, sink, f"/accept/{tenant[0]}"))
        path = path.replace("{job_id}", "subject").replace("{name}", "subject")
        answer = await api.request(
            method, path, content=json.dumps(value), headers={"content-type": media_type}
        )
        assert answer.status_code == EXPECTED.get(name.partition("-")[0], 200), answer.text
        if answer.content and "results" in answer.json():
            assert {result["status"] for result in answer.json()["results"]} == {201}
        sink.released.set()
        for job in (await api.get("/v1/jobs")).json()["items"]:
            await api.delete(f"/v1/jobs/{job['id']}?running=cancel")


def schema_examples() -> Iterator[tuple[str, Any, Any]]:
    """Every example of every schema, wherever it stands."""

    def walk(place: str, schema: Any) -> Iterator[tuple[str, Any, Any]]:
        if isinstance(schema, list):
            for index, inner in enumerate(schema):
                yield from walk(f"{place}/{index}", inner)
        if not isinstance(schema, dict):
            return
        for example in schema.get("examples", []):
            yield place, schema, example
        for name, inner in schema.items():
            if name not in ("examples", "default", "const", "enum"):
                yield from walk(f"{place}/{name}", inner)

    yield from walk("", DOCUMENT["components"]["schemas"])


def test_examples_of_answers_have_the_shape_of_their_schema() -> None:
    found = list(schema_examples())
    shown = {place.strip("/") for place, _, _ in found}
    assert {"JobAnswer", "ExecutionAnswer", "Problem", "BulkAnswer"} <= shown
    for place, schema, example in found:
        whole = {**schema, "components": DOCUMENT["components"]}
        errors = [str(error) for error in jsonschema_rs.iter_errors(whole, example, validate_formats=True)]
        assert errors == [], place


def test_an_example_with_a_fault_is_found() -> None:
    """The check above does not pass over what references lead to."""
    whole = {**DOCUMENT["components"]["schemas"]["JobAnswer"], "components": DOCUMENT["components"]}
    [example] = whole["examples"]
    for wrong in ({**example, "next_runs": [{}]}, {**example, "created_at": "yesterday"}):
        assert not jsonschema_rs.is_valid(whole, wrong, validate_formats=True)


def test_what_a_job_answers_has_every_field_of_its_example() -> None:
    schema = DOCUMENT["components"]["schemas"]["JobAnswer"]
    assert set(schema["examples"][0]) == set(schema["properties"])
