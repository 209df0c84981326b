"""Leaving out one occurrence that lies ahead: whether the instant is one, judged by the domain's rules."""

from __future__ import annotations

from datetime import datetime, timedelta

from api.jobs.rules import recurrence_of
from api.problems import FieldError, Kind, ProblemError
from workflows.contracts.base import rfc3339
from workflows.contracts.job import JobView
from workflows.contracts.names import scheduled_key

POINTER = "/scheduled_time"


def check_ahead(view: JobView, tenant: str, at: datetime, now: datetime) -> None:
    """Raises 422 unless ``at`` is an occurrence of the job, and 409 when that has been served or runs.

    The workflow decides once more, at its own instant.
    """
    recurrence = recurrence_of(view.definition, tenant=tenant, job=view.job)
    following = recurrence.after(at - timedelta(seconds=1))
    if following != at and at not in view.skips:
        raise _no_occurrence(at, [recurrence.before(at), following])
    if view.status == "completed":
        raise _no_occurrence(at, [])
    if view.current is not None and view.current.key == scheduled_key(tenant, view.ref, at):
        if view.current.fires_at <= now or view.current.started_at is not None:
            raise running(view.current.key)
    elif at <= view.cursor or recurrence.fires_at(at) <= now:
        raise ProblemError(
            Kind.OCCURRENCE_SERVED,
            f"The occurrence of {rfc3339(at)} does not lie ahead any more; only one ahead can be skipped.",
        )


def running(key: str) -> ProblemError:
    return ProblemError(
        Kind.RUN_ACTIVE,
        f"The occurrence is running as `{key}`: cancel that execution instead of skipping it.",
        active=key,
    )


def _no_occurrence(at: datetime, near: list[datetime | None]) -> ProblemError:
    nearest = [rfc3339(instant) for instant in near if instant is not None]
    text = " and ".join(f"`{instant}`" for instant in nearest)
    detail = f"The job has no occurrence at {rfc3339(at)} ahead; " + (
        f"the nearest: {text}." if nearest else "it has run for the last time."
    )
    return ProblemError(
        Kind.INVALID, detail, errors=[FieldError(pointer=POINTER, detail=detail)], nearest=nearest
    )
