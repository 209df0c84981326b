"""Every answer that a test sees is held against the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import BaseModel

from api.bulks import BulkAnswer
from api.jobs.answers import (
    BatchAnswer,
    CancelledExecutionAnswer,
    ChangedJobAnswer,
    DeletedAnswer,
    ExecutionAnswer,
    ExecutionPage,
    JobAnswer,
    JobPage,
)
from api.jobs.backfills import BackfillAnswer, BackfillList, CancelledBackfillAnswer
from api.letters import LetterPage, LetterStoryAnswer
from api.problems import Problem
from api.routers.schedules import Preview

MODELS: dict[str, type[BaseModel]] = {
    model.__name__: model
    for model in (
        BackfillAnswer, BackfillList, BatchAnswer, BulkAnswer, CancelledBackfillAnswer,
        CancelledExecutionAnswer, ChangedJobAnswer, DeletedAnswer, ExecutionAnswer, ExecutionPage, JobAnswer,
        JobPage, LetterPage, LetterStoryAnswer, Preview, Problem,
    )
}  # fmt: skip


def checker(app: FastAPI) -> Callable[[httpx.Response], Awaitable[None]]:
    """An event hook for a client: documented calls answer with documented statuses and shapes."""
    document = app.openapi()
    operations = [
        (method.upper(), re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)), operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]

    async def check(response: httpx.Response) -> None:
        request = response.request
        for method, path, operation in operations:
            if method == request.method and path.fullmatch(request.url.path):
                await response.aread()
                hold(operation, response)
                return

    return check


def hold(operation: dict[str, Any], response: httpx.Response) -> None:
    name = operation["operationId"]
    documented = operation["responses"].get(str(response.status_code))
    assert documented, f"{name} answers {response.status_code}, which is not documented: {response.text}"
    if response.status_code == 204:
        assert response.content == b""
        return
    media_type = response.headers["content-type"].partition(";")[0]
    assert media_type in documented["content"], f"{name} answers {response.status_code} as {media_type}"
    reference = documented["content"][media_type]["schema"].get("$ref", "").rpartition("/")[2]
    if reference in MODELS:
        MODELS[reference].model_validate_json(response.text)
    if response.status_code in (200, 201) and "ETag" in documented.get("headers", {}):
        assert response.headers["etag"] == f'"{response.json()["revision"]}"'
