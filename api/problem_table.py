"""The one table from errors to problem documents. Nothing else translates."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from api.preconditions import mismatch
from api.problems import FieldError, Kind, ProblemError, invalid, invalid_parameter
from infra.database.errors import (
    BadCursor,
    CreateRateExceeded,
    DatabaseError,
    DatabaseRejected,
    DatabaseUnavailable,
    IdempotencyConflict,
    JobExists,
    QuotaExceeded,
)
from infra.temporal.errors import SetupError
from workflows.contracts import failures
from workflows.domain.errors import RuleError

SOON = {"Retry-After": "1"}
LATER = {"Retry-After": "5"}
MAY_BE_APPLIED = "A change sent with it may still be applied: read the job before you send it again."


def not_parallel(policy: str) -> ProblemError:
    return invalid(
        f"More than one at once needs the concurrency policy `allow`, and the job's is `{policy}`: leave "
        "`max_concurrent` out, or change the policy first.",
        "/max_concurrent",
    )


def no_such_backfill() -> ProblemError:
    return ProblemError(
        Kind.NOT_FOUND, "There is no such backfill of this job; the last twenty that have ended are kept."
    )


def job_lost() -> ProblemError:
    return ProblemError(
        Kind.JOB_LOST,
        "The job's workflow was ended from outside (an operator terminated it), so the job runs no more and "
        "takes no change: delete it, then create it again.",
    )


_Rejection = Callable[[str], ProblemError]
REJECTIONS: dict[str, _Rejection] = {
    failures.JOB_LOST: lambda _: job_lost(),
    failures.REVISION_MISMATCH: lambda revision: mismatch(int(revision)),
    failures.JOB_DELETED: lambda _: ProblemError(Kind.NOT_FOUND, "The job has been deleted."),
    failures.RUN_ACTIVE: lambda key: ProblemError(
        Kind.RUN_ACTIVE,
        f"The run `{key}` is active, and the job's policy is `forbid`: wait until it has ended, or send "
        "`force` to run beside it.",
        active=key,
    ),
    failures.EXECUTION_ENDED: lambda _: ProblemError(
        Kind.EXECUTION_ENDED, "The execution has ended already; there is nothing to cancel."
    ),
    failures.NO_SUCH_OCCURRENCE: lambda _: ProblemError(
        Kind.OCCURRENCE_SERVED, "The occurrence has been served already; only one ahead can be skipped."
    ),
    failures.TOO_MANY_SKIPS: lambda why: ProblemError(
        Kind.TOO_MANY_SKIPS, f"{why}; take some back, or pause the job until then."
    ),
    failures.JOB_BUSY: lambda why: ProblemError(
        Kind.BUSY, f"{why}; nothing was done, try again.", headers=SOON
    ),
    failures.LETTER_CLOSED: lambda status: ProblemError(
        Kind.NOT_FOUND, f"The dead letter is not open any more: {status}."
    ),
    failures.LETTER_REDRIVING: lambda key: ProblemError(
        Kind.RUN_ACTIVE,
        f"Its redrive is under way as `{key}`: cancel that execution first, or wait until it has ended.",
        active=key,
    ),
    failures.NO_SUCH_BACKFILL: lambda _: no_such_backfill(),
    failures.TOO_MANY_BACKFILLS: lambda why: ProblemError(
        Kind.TOO_MANY_REQUESTS, f"{why}; wait until one has ended, or cancel one.", headers=LATER
    ),
    failures.NOT_PARALLEL: lambda policy: not_parallel(policy),
    failures.TOO_MANY_BULKS: lambda why: ProblemError(
        Kind.TOO_MANY_REQUESTS, f"{why}; wait until one has ended.", headers=LATER
    ),
    failures.GROUP_IN_USE: lambda key: ProblemError(
        Kind.GROUP_IN_USE,
        f"The run `{key}` has a place in the group or waits for one: wait until it has ended, or cancel it.",
        active=key,
    ),
    failures.NO_ANSWER: lambda _: ProblemError(
        Kind.NO_ANSWER, f"The job did not answer. {MAY_BE_APPLIED}", headers=LATER
    ),
    failures.TOO_MANY_TRIGGERS: lambda why: ProblemError(
        Kind.TOO_MANY_REQUESTS, f"{why}; wait until some have run.", headers=LATER
    ),
}
"""By the type of the ApplicationError with which a workflow rejects an update, from its message."""

_UNREACHABLE = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.UNKNOWN,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.ABORTED,
        RPCStatusCode.FAILED_PRECONDITION,
    }
)


def problem_for(error: BaseException) -> ProblemError | None:
    """The problem an error stands for; None: it is a fault of ours, a 500."""
    if isinstance(error, ProblemError):
        return error
    for kind, translate in _TABLE:
        if isinstance(error, kind):
            return translate(error)
    return None


def _rule(error: RuleError) -> ProblemError:
    detail = str(error)
    entry = FieldError(pointer=error.pointer, detail=detail)
    return ProblemError(Kind.INVALID, detail, errors=[entry], code=error.code)


def _request(error: RequestValidationError) -> ProblemError:
    """Only paths, queries and headers are validated by the framework; bodies are our own."""
    entries = []
    for item in error.errors():
        place, *rest = item["loc"]
        name = str(rest[0]) if rest else str(place)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "There is no such parameter; see /docs for those there are."
        entries.append(FieldError(pointer="", parameter=name, detail=message))
    first = entries[0]
    return ProblemError(Kind.INVALID, f"`{first.parameter}`: {first.detail}", errors=entries)


def _http(error: HTTPException) -> ProblemError:
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            return ProblemError(
                Kind.NOT_FOUND, "There is nothing at this address; see /docs.", headers=headers
            )
        case 405:
            return method_not_allowed(())
        case _:
            return ProblemError(Kind.MALFORMED, "The request cannot be read; see /docs.", headers=headers)


def method_not_allowed(methods: Collection[str]) -> ProblemError:
    """With the header Allow; a router names the methods of one of its routes only."""
    allowed = ", ".join(sorted(methods))
    return ProblemError(
        Kind.METHOD_NOT_ALLOWED,
        f"This address answers {allowed or 'other methods'}.",
        headers={"Allow": allowed},
    )


def _update(error: WorkflowUpdateFailedError) -> ProblemError:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type in REJECTIONS:
        return REJECTIONS[cause.type](cause.message)
    return ProblemError(
        Kind.BUSY, f"The job did not answer the change to its end. {MAY_BE_APPLIED}", headers=SOON
    )


def _no_answer(error: BaseException) -> ProblemError:
    return ProblemError(Kind.NO_ANSWER, f"No worker answered in time. {MAY_BE_APPLIED}", headers=LATER)


def _query(error: WorkflowQueryFailedError) -> ProblemError:
    return ProblemError(Kind.NO_ANSWER, "The job could not be read; try again.", headers=LATER)


def _rpc(error: RPCError) -> ProblemError | None:
    if error.status is RPCStatusCode.NOT_FOUND:
        return ProblemError(Kind.NOT_FOUND, "There is no such job, or it has been deleted.")
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        return ProblemError(Kind.BUSY, "Temporal is at its limit; nothing was done. Try again.", headers=SOON)
    if error.status in _UNREACHABLE:
        return ProblemError(
            Kind.SCHEDULER_UNAVAILABLE, f"Temporal does not answer. {MAY_BE_APPLIED}", headers=LATER
        )
    return None


def _setup(error: SetupError) -> ProblemError:
    return ProblemError(
        Kind.SCHEDULER_UNAVAILABLE, "Temporal cannot be reached; nothing was done.", headers=LATER
    )


def _database(error: DatabaseError) -> ProblemError | None:
    match error:
        case DatabaseUnavailable():
            return ProblemError(
                Kind.DATABASE_UNAVAILABLE,
                "The database does not answer, and this call needs it. Jobs run on; try again.",
                headers=LATER,
            )
        case CreateRateExceeded():
            wait = str(max(1, math.ceil(error.retry_after.total_seconds())))
            return ProblemError(Kind.TOO_MANY_REQUESTS, str(error), headers={"Retry-After": wait})
        case QuotaExceeded():
            return ProblemError(Kind.QUOTA_EXCEEDED, str(error))
        case JobExists():
            return ProblemError(Kind.ID_IN_USE, str(error))
        case IdempotencyConflict():
            return ProblemError(Kind.IDEMPOTENCY_MISMATCH, str(error))
        case BadCursor():
            return invalid_parameter("cursor", "This list gave out no such cursor; begin without one.")
        case DatabaseRejected():
            return invalid("The database cannot hold a value of this request; see /docs for the bounds.")
        case _:
            return None


_TABLE: list[tuple[type[BaseException], Callable[[Any], ProblemError | None]]] = [
    (RuleError, _rule),
    (RequestValidationError, _request),
    (HTTPException, _http),
    (WorkflowUpdateFailedError, _update),
    (WorkflowUpdateRPCTimeoutOrCancelledError, _no_answer),
    (WorkflowQueryFailedError, _query),
    (RPCError, _rpc),
    (SetupError, _setup),
    (DatabaseError, _database),
]
