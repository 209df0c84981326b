"""What several calls document and answer alike."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header
from fastapi.responses import JSONResponse

from api.idempotency import MAX_KEY
from api.preconditions import etag
from api.problems import Kind

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Makes a repeat of this call safe for 24 hours.",
        json_schema_extra={"minLength": 1, "maxLength": MAX_KEY, "pattern": "^[ -~]+$"},
    ),
]
IfMatchHeader = Annotated[
    str | None,
    Header(alias="If-Match", description="The ETag as you know it: of the job, or of the tenant's settings."),
]
ALWAYS = (
    Kind.UNAUTHENTICATED, Kind.FORBIDDEN, Kind.TOO_MANY_REQUESTS, Kind.INTERNAL, Kind.KEYS_UNAVAILABLE,
)  # fmt: skip
"""What every call with a token may answer."""
BODY = (Kind.TOO_LARGE, Kind.UNSUPPORTED_MEDIA_TYPE, Kind.MALFORMED, Kind.INVALID)
CHANGE = (Kind.NO_ANSWER, Kind.BUSY, Kind.SCHEDULER_UNAVAILABLE, Kind.DATABASE_UNAVAILABLE)
JOB_CHANGE = (*CHANGE, Kind.NOT_FOUND, Kind.JOB_LOST)
"""Of one job that is there already."""
CREATE_CALL = "POST /v1/jobs"
"""Part of a creation's fingerprint; one of a batch has the same."""
TEXT = {"type": "string"}
INTEGER = {"type": "integer"}
ETAG = {"ETag": {"description": "The revision.", "schema": TEXT}}
CREATED = {**ETAG, "Location": {"description": "Where the job is.", "schema": TEXT}}


def job_response(document: dict[str, Any], status: int = 200, **headers: str) -> JSONResponse:
    """A job with its ETag."""
    return JSONResponse(document, status_code=status, headers={"ETag": etag(document["revision"]), **headers})
