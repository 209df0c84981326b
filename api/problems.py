"""Problem documents (RFC 9457): every answer that is not a success has this shape.

The kinds below are the whole vocabulary; their ``type`` URIs are stable and listed in ``/docs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

PROBLEM_MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:carillon:problem:"


class Kind(Enum):
    """Slug of the ``type`` URI, status, and title of each problem there is."""

    UNAUTHENTICATED = ("unauthenticated", 401, "No valid token")
    FORBIDDEN = ("forbidden", 403, "The token does not open this call")
    NOT_FOUND = ("not-found", 404, "Not found")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "No such method here")
    ID_IN_USE = ("id-in-use", 409, "The id is in use")
    RUN_ACTIVE = ("run-active", 409, "A run is active")
    QUOTA_EXCEEDED = ("quota-exceeded", 409, "The tenant has no room for it")
    EXECUTION_ENDED = ("execution-ended", 409, "The execution has ended")
    STALE_CALLBACK = ("stale-callback", 409, "The token's right is over")
    NOT_RERUNNABLE = ("not-rerunnable", 409, "The execution cannot be run again")
    JOB_LOST = ("job-lost", 409, "The job's workflow was ended from outside")
    GROUP_IN_USE = ("group-in-use", 409, "The group is in use")
    OCCURRENCE_SERVED = ("occurrence-served", 409, "The occurrence does not lie ahead any more")
    TOO_MANY_SKIPS = ("too-many-skips", 409, "The job has no room for another skip")
    GONE = ("gone", 410, "Not there any more")
    REVISION_MISMATCH = ("revision-mismatch", 412, "Changed meanwhile")
    TOO_LARGE = ("too-large", 413, "The body is too large")
    UNSUPPORTED_MEDIA_TYPE = ("unsupported-media-type", 415, "Not JSON")
    MALFORMED = ("malformed", 422, "The body cannot be read")
    INVALID = ("invalid", 422, "The request is not valid")
    NOT_BUILT = ("not-built", 422, "Not available yet")
    IDEMPOTENCY_MISMATCH = ("idempotency-mismatch", 422, "The Idempotency-Key belongs to another request")
    TOO_MANY_REQUESTS = ("too-many-requests", 429, "Too many requests")
    INTERNAL = ("internal", 500, "Something went wrong here")
    BUSY = ("busy", 503, "The job is busy")
    NO_ANSWER = ("no-answer", 503, "No worker answered in time")
    SCHEDULER_UNAVAILABLE = ("scheduler-unavailable", 503, "Temporal cannot be reached")
    KEYS_UNAVAILABLE = ("keys-unavailable", 503, "The issuer of tokens cannot be reached")
    DATABASE_UNAVAILABLE = ("database-unavailable", 503, "The database cannot be reached")

    def __init__(self, slug: str, status: int, title: str) -> None:
        self.slug = slug
        self.status = status
        self.title = title

    @property
    def uri(self) -> str:
        return TYPE_PREFIX + self.slug


class FieldError(BaseModel):
    """What is wrong with one field of the request."""

    pointer: str = Field(description="JSON pointer into the body; empty for the whole of it.")
    detail: str = Field(description="What is wrong and how to mend it.")
    parameter: str | None = Field(
        default=None, description="Set instead of a pointer: the query parameter or header."
    )


class Problem(BaseModel):
    """An answer that is not a success."""

    type: str = Field(description="Stable URI of the kind of problem.", examples=[Kind.INVALID.uri])
    title: str = Field(examples=[Kind.INVALID.title])
    status: int = Field(examples=[422])
    detail: str = Field(description="What happened and how to mend it.")
    errors: list[FieldError] | None = Field(default=None, description="One entry for each field at fault.")


class ProblemError(Exception):
    """Raised anywhere below an endpoint; becomes the answer as it is."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.extra = extra

    def document(self) -> dict[str, Any]:
        problem = Problem(
            type=self.kind.uri,
            title=self.kind.title,
            status=self.kind.status,
            detail=self.detail,
            errors=self.errors or None,
        )
        return problem.model_dump(exclude_none=True) | self.extra


def invalid(detail: str, pointer: str = "") -> ProblemError:
    """A 422 with one field at fault."""
    return ProblemError(Kind.INVALID, detail, errors=[FieldError(pointer=pointer, detail=detail)])


def invalid_parameter(parameter: str, detail: str) -> ProblemError:
    """A 422 for a query parameter or a header."""
    return ProblemError(
        Kind.INVALID, detail, errors=[FieldError(pointer="", parameter=parameter, detail=detail)]
    )


def respond(problem: ProblemError) -> JSONResponse:
    return JSONResponse(
        problem.document(),
        status_code=problem.kind.status,
        headers=problem.headers,
        media_type=PROBLEM_MEDIA_TYPE,
    )
