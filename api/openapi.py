"""The OpenAPI document: what the framework derives, plus what it cannot know.

Bodies are read by our own bounded parser, so their schemas are added here; so are the security
scheme with its scopes, and the problems each call can answer with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.auth.principal import SCOPES, Scope
from api.examples import ANSWERS
from api.problems import PROBLEM_MEDIA_TYPE, Kind, Problem
from api.requests import REQUEST_MODELS

TITLE = "Carillon"
SUMMARY = "Jobs that run on time."
DESCRIPTION = """\
A multi-tenant job scheduler: recurring and one-off jobs, delivered over HTTP **at least once**,
with a record of every run.

Send `Authorization: Bearer <token>` with every call; the tenant is the token's. Times are RFC 3339
in UTC, durations ISO 8601 (`PT90S`) or a number of seconds. Everything that is not a success is a
problem document (RFC 9457).
"""
SCHEME = "token"
_UNSAID = "Successful Response"
"""What the framework says of an answer of which nothing is said."""
_REF = "#/components/schemas/{model}"


def reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def body(
    model: type[BaseModel],
    examples: dict[str, Any],
    *,
    media_types: Sequence[str] = ("application/json",),
    required: bool = True,
) -> dict[str, Any]:
    """``openapi_extra`` of a call with a JSON body; each example is ``summary: value``."""
    named = {
        summary.lower().replace(" ", "-"): {"summary": summary, "value": value}
        for summary, value in examples.items()
    }
    media = {"schema": reference(model), "examples": named}
    return {"requestBody": {"required": required, "content": dict.fromkeys(media_types, media)}}


def problems(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a call: one entry a status, with every problem it may carry."""
    found: dict[int | str, list[Kind]] = {}
    for kind in dict.fromkeys(kinds):
        found.setdefault(kind.status, []).append(kind)
    return {status: _response(int(status), kinds_) for status, kinds_ in found.items()}


def _response(status: int, kinds: list[Kind]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": "; ".join(f"{kind.title} (`{kind.slug}`)" for kind in kinds),
        "content": {PROBLEM_MEDIA_TYPE: {"schema": reference(Problem)}},
    }
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
        }
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return response


def security(scope: Scope) -> list[dict[str, list[str]]]:
    return [{SCHEME: [scope]}]


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document, built once."""
    if app.openapi_schema:
        return app.openapi_schema
    made = get_openapi(
        title=TITLE,
        version=app.version,
        summary=SUMMARY,
        description=DESCRIPTION,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _, requested = models_json_schema(
        [(model, "validation") for model in REQUEST_MODELS], by_alias=True, ref_template=_REF
    )
    for name, schema in requested.get("$defs", {}).items():
        schemas.setdefault(name, schema)
    schemas["JobPatch"] = _patch_schema(schemas["JobRequest"], schemas["JobPatch"])
    _, shared = models_json_schema([(Problem, "serialization")], ref_template=_REF)
    schemas.update(shared.get("$defs", {}))
    for name, example in ANSWERS.items():
        schemas[name]["examples"] = [example]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "Scopes: " + " ".join(f"`{name}`: {text}" for name, text in SCOPES.items()),
        }
    }
    _mend(made)
    app.openapi_schema = made
    return made


def _patch_schema(job: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Any field of a definition, or null to give it its default back."""
    properties = {name: _or_null(field) for name, field in job["properties"].items()}
    return {
        "title": patch["title"],
        "description": patch["description"],
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _or_null(field: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {key: field[key] for key in ("title", "description") if key in field}
    inner = {key: value for key, value in field.items() if key not in ("default", *said)}
    return {"anyOf": [inner, {"type": "null"}], **said}


def methods_of(made: dict[str, Any], path: str) -> list[str]:
    """The methods documented for a concrete path; one that is named whole goes before a template."""
    templates = sorted(made["paths"], key=lambda template: "{" in template)
    for template in templates:
        if re.fullmatch(re.sub(r"\\\{[^}]+\\\}", "[^/]+", re.escape(template)), path):
            return [method.upper() for method in made["paths"][template]]
    return []


def _mend(made: dict[str, Any]) -> None:
    """Takes out the framework's own words, and says that a schedule's unused forms are left out."""
    for path in made["paths"].values():
        for operation in path.values():
            answer = operation.get("responses", {}).get("422", {}).get("content", {})
            if "HTTPValidationError" in str(answer):
                operation["responses"]["422"] = _response(422, [Kind.INVALID])
            for response in operation.get("responses", {}).values():
                if response["description"] == _UNSAID:
                    response["description"] = _said(response, made["components"]["schemas"])
    for name, schema in made["components"]["schemas"].items():
        if name.startswith(("Schedule", "ExceptWindow")):
            schema.pop("required", None)


def _said(response: dict[str, Any], schemas: dict[str, Any]) -> str:
    """The first sentence of the shape that is answered."""
    content = next(iter(response.get("content", {}).values()), None)
    if content is None:
        return "Done, with nothing to say."
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    description: str = schemas.get(name, {}).get("description", "What was asked for.")
    return " ".join(description.partition("\n\n")[0].split())
