"""The document that clients are generated from, and the page that people read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from api import examples
from api.auth.principal import SCOPES
from api.definitions import DURATIONS, INSTANTS, parse_definition
from api.problems import Kind
from api.requests import REQUEST_MODELS
from workflows.contracts.definition import JobDefinition

TARGET = {"type": "http", "url": "https://example.com/hook"}
REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "createJob": ("POST", "/v1/jobs", examples.CREATE),
    "putJob": ("PUT", "/v1/jobs/x", examples.REPLACE),
    "previewSchedule": ("POST", "/v1/schedules/preview", examples.PREVIEW),
}


@pytest.fixture
def document(offline: FastAPI) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offline.openapi()))
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation


def test_every_operation_has_an_id_a_summary_and_its_problems(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for path, operation in operations(document):
        assert operation["summary"], operation["operationId"]
        if path.startswith("/v1/callbacks/"):
            assert operation["security"] == [], "the token in the address is the right"
            assert {"404", "409", "410", "500", "503"} <= set(operation["responses"])
        elif path.startswith("/v1"):
            [[scopes]] = [list(entry.values()) for entry in operation["security"]]
            assert set(scopes) <= set(SCOPES)
            assert {"401", "403", "500"} <= set(operation["responses"])


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)):
        assert reference.removeprefix("#/components/schemas/") in schemas


def test_every_problem_is_documented_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps([operation["responses"] for _, operation in operations(document)])
    unlisted = {Kind.METHOD_NOT_ALLOWED}
    assert [kind.slug for kind in Kind if kind not in unlisted and f"`{kind.slug}`" not in text] == []


def test_every_field_that_a_client_sends_is_described(document: dict[str, Any]) -> None:
    """Or is a shape of its own, which is described there."""
    schemas = document["components"]["schemas"]
    _, sent = models_json_schema([(model, "validation") for model in REQUEST_MODELS], by_alias=True)
    fields = [
        (name, field, inner)
        for name in sorted(sent["$defs"].keys() - {"JobPatch"})
        for field, inner in schemas[name].get("properties", {}).items()
    ]
    assert len(fields) > 80
    assert [(name, field) for name, field, inner in fields if not {"description", "$ref"} & set(inner)] == []


def test_what_an_answer_means_is_said_once(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            said = response["description"].split("; ")
            assert len(said) == len(set(said)), (name, status)
            assert said != ["Successful Response"], (name, status)


def test_the_document_names_no_page_that_a_client_does_not_have(document: dict[str, Any]) -> None:
    assert re.findall(r"\w+\.md", json.dumps(document)) == []


@pytest.mark.parametrize(
    ("operation", "summary"),
    [(name, summary) for name, (_, _, shown) in REQUESTS.items() for summary in shown],
)
async def test_the_documented_examples_are_accepted(
    offline_client: httpx.AsyncClient, operation: str, summary: str
) -> None:
    """Temporal is away, so a creation that is accepted ends in a 503."""
    method, path, shown = REQUESTS[operation]
    answer = await offline_client.request(method, path, json=shown[summary])
    assert answer.status_code in (200, 503), answer.text


async def test_the_page_needs_nothing_from_elsewhere(offline_client: httpx.AsyncClient) -> None:
    """No script, style, font or picture of another host: it has to work without a network."""
    answer = await offline_client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    loaded = re.findall(r"""(?:src|href)=["']([^"'#]+)|url\(([^)]+)\)|@import""", answer.text)
    assert {first or second for first, second in loaded} == {"openapi.json", "data:,"}
    for name in ("createJob", "patchJob", "deleteJob", "previewSchedule", "daily-report"):
        assert name in answer.text


def test_the_page_escapes_what_it_shows(document: dict[str, Any]) -> None:
    from api.web.reference import page

    document["paths"]["/v1/jobs"]["post"]["summary"] = "<script>alert(1)</script>"
    assert "<script>alert" not in page(document)


async def test_metrics_count_answers_by_route(offline_client: httpx.AsyncClient) -> None:
    await offline_client.get("/v1/jobs/some-id")
    text = (await offline_client.get("/metrics")).text
    assert 'carillon_api_requests_total{method="GET",route="/v1/jobs/{job_id}",status="404"}' in text
    assert "some-id" not in text


def _formats(schema: dict[str, Any], defs: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if "$ref" in schema:
        yield from _formats(defs[schema["$ref"].rpartition("/")[2]], defs, path)
    for inner in schema.get("anyOf", []):
        yield from _formats(inner, defs, path)
    if "format" in schema:
        yield path, schema["format"]
    if "items" in schema:
        yield from _formats(schema["items"], defs, f"{path}/*")
    for name, inner in schema.get("properties", {}).items():
        yield from _formats(inner, defs, f"{path}/{name}".removeprefix("/"))


def test_the_lists_of_durations_and_instants_are_whole() -> None:
    """Each duration of a definition may be a number, each instant must be a text."""
    schema = JobDefinition.model_json_schema()
    found = set(_formats(schema, schema["$defs"], ""))
    assert {path for path, form in found if form == "duration"} == set(DURATIONS)
    instants = {path for path, form in found if form == "date-time"}
    assert instants == set(INSTANTS) - {"since", "until", "from", "to", "scheduled_time"}


@pytest.mark.parametrize("path", sorted({*DURATIONS} - {"schedule/in"}))
def test_a_number_of_seconds_is_a_duration(path: str) -> None:
    body: dict[str, Any] = {"schedule": {"every": "PT1H"}, "target": TARGET}
    holder = body
    *parents, name = path.split("/")
    for parent in parents:
        holder = holder.setdefault(parent, {})
    holder[name] = 60
    document: Any = parse_definition(body).model_dump(mode="json", by_alias=True)
    for part in path.split("/"):
        document = document[part]
    assert document == "PT1M"
