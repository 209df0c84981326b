"""Backfills: how many occurrences one has, and how far it has come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from activities.backfill import first_of
from api.connection import Connection
from api.jobs.reading import view_of
from api.jobs.refs import Found
from api.jobs.rules import recurrence_of
from api.jobs.tombstones import refuse_lost
from api.problem_table import LATER, no_such_backfill, not_parallel
from api.problems import Kind, ProblemError, invalid
from api.requests import BackfillBody
from infra.database.executions import History
from workflows.contracts.backfill import COUNT_MAX, HISTORY_KEPT, Backfill, Only
from workflows.contracts.base import Instant, rfc3339
from workflows.contracts.definition import Concurrency, JobDefinition
from workflows.contracts.job import InFlight
from workflows.contracts.names import occurrence_key, scheduled_key
from workflows.domain.backfill import remaining

FIRST = 10
"""Occurrences that a dry run names."""
WINDOW = 5_000
"""Occurrences whose outcomes are read at once."""
COUNT_WITHIN_S = 5.0
SLACK = timedelta(hours=1)
"""Whoever computes the oldest instant there is must not be refused for being slow."""
_ID = re.compile(r"b([1-9][0-9]{0,8})")
_TICK = timedelta(microseconds=1)


class BackfillAnswer(BaseModel):
    """A backfill and how far it has come. No count ever goes back, and `remaining` never up."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    id: str | None = Field(description="Null for a dry run.")
    job: str
    from_: Instant = Field(alias="from")
    to: Instant
    only: Only
    max_concurrent: int
    dry_run: bool
    status: Literal["running", "done", "cancelled", "dry_run"]
    reason: str | None = Field(description="Why it was cancelled.")
    total: int = Field(description="Occurrences to run, as counted when it was asked for.")
    started: int
    succeeded: int
    dead_lettered: int
    cancelled: int = Field(description="Begun, and ended without an outcome of the target's.")
    remaining: int = Field(description="Not begun yet; of a cancelled one, never to be.")
    first: list[Instant] | None = Field(description="Of a dry run: its first ten occurrences.")
    by: str
    created_at: Instant
    ended_at: Instant | None


class CancelledBackfillAnswer(BackfillAnswer):
    """A backfill after it was cancelled."""

    in_flight: list[InFlight] = Field(description="Its executions that had begun, and go on to their end.")


class BackfillList(BaseModel):
    """Those under way and the last twenty that have ended, newest first."""

    model_config = ConfigDict(frozen=True)

    items: list[BackfillAnswer]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """How many occurrences would run, and the first of them."""

    total: int
    first: Sequence[datetime]


def check(asked: BackfillBody, concurrency: Concurrency, now: datetime) -> None:
    """Raises one 422 for what no history is needed to refuse; the job decides once more."""
    if asked.from_ >= asked.to:
        raise invalid("`from` must lie before `to`, which itself is not run.", "/from")
    if asked.to > now:
        raise invalid(
            f"`to` must not lie in the future: it is {rfc3339(now)}. What is still to come runs by itself.",
            "/to",
        )
    if asked.only == "missing" and asked.from_ < now - HISTORY_KEPT - SLACK:
        raise invalid(
            f"The history keeps {HISTORY_KEPT.days} days, so what is missing before "
            f"{rfc3339((now - HISTORY_KEPT).replace(microsecond=0))} is not known: begin later, or send "
            '`"only": "all"` to run every occurrence.',
            "/from",
        )
    if asked.max_concurrent > 1:
        _check_parallel(asked.max_concurrent, concurrency)


def _check_parallel(wanted: int, concurrency: Concurrency) -> None:
    if concurrency.policy != "allow":
        raise not_parallel(concurrency.policy)
    if wanted > concurrency.limit:
        raise invalid(
            f"The job's `concurrency.limit` is {concurrency.limit}: no more than that can run at once.",
            "/max_concurrent",
        )


async def count(history: History, found: Found, definition: JobDefinition, asked: BackfillBody) -> Counted:
    """Raises 422 for a range with more than :data:`COUNT_MAX` occurrences, 503 for ``missing`` when the
    history does not answer in time."""
    recurrence = recurrence_of(definition, tenant=found.tenant, job=found.job)
    from_, to = asked.from_, asked.to
    within = recurrence.count(from_ - _TICK, to - _TICK, cap=COUNT_MAX)
    if not within.complete:
        raise invalid(
            f"The range has more than {COUNT_MAX} occurrences, which is as many as one backfill may have: "
            "split it.",
            "/to",
        )
    if asked.only == "all":
        return Counted(within.total, first_of(recurrence, from_, to, FIRST))
    instants = await asyncio.to_thread(first_of, recurrence, from_, to, COUNT_MAX)
    try:
        async with asyncio.timeout(COUNT_WITHIN_S):
            missing = await _missing(history, found, instants)
    except TimeoutError:
        raise ProblemError(
            Kind.DATABASE_UNAVAILABLE,
            "The history did not answer in time; nothing was done. Try again, or ask for a shorter range.",
            headers=LATER,
        ) from None
    return Counted(len(missing), missing[:FIRST])


async def _missing(history: History, found: Found, instants: Sequence[datetime]) -> list[datetime]:
    missing: list[datetime] = []
    for begin in range(0, len(instants), WINDOW):
        window = instants[begin : begin + WINDOW]
        told = await history.outcomes(found.tenant, found.ref, window[0], window[-1], succeeded=True)
        keys = {occurrence_key(row.key) for row in told}
        missing += [at for at in window if scheduled_key(found.tenant, found.ref, at) not in keys]
    return missing


def number_of(backfill_id: str) -> int:
    """Raises 404 for what is no id of a backfill."""
    named = _ID.fullmatch(backfill_id)
    if named is None:
        raise no_such_backfill()
    return int(named.group(1))


async def backfills_of(connection: Connection, found: Found) -> list[Backfill]:
    """As the job knows them, newest first; the database is not needed. Raises 503 without an answer."""
    view = await view_of(connection, found)
    if view is None:
        await refuse_lost(connection, found)
        raise ProblemError(
            Kind.NO_ANSWER,
            "No worker answered in time; backfills go on as soon as one does.",
            headers=LATER,
        )
    return sorted(view.backfills, key=lambda one: -one.number)


def answer_of(job: str, one: Backfill) -> BackfillAnswer:
    return BackfillAnswer(
        id=f"b{one.number}",
        job=job,
        from_=one.from_,
        to=one.to,
        only=one.only,
        max_concurrent=one.max_concurrent,
        dry_run=False,
        status=one.status,
        reason=one.reason,
        total=one.total,
        started=one.started,
        succeeded=one.succeeded,
        dead_lettered=one.dead_lettered,
        cancelled=one.cancelled,
        remaining=remaining(one),
        first=None,
        by=one.by,
        created_at=one.at,
        ended_at=one.ended_at,
    )


def dry_answer(job: str, asked: BackfillBody, counted: Counted, by: str, now: datetime) -> BackfillAnswer:
    return BackfillAnswer(
        id=None,
        job=job,
        from_=asked.from_,
        to=asked.to,
        only=asked.only,
        max_concurrent=asked.max_concurrent,
        dry_run=True,
        status="dry_run",
        reason=None,
        total=counted.total,
        started=0,
        succeeded=0,
        dead_lettered=0,
        cancelled=0,
        remaining=counted.total,
        first=list(counted.first),
        by=by,
        created_at=now,
        ended_at=now,
    )
