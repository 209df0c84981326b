"""Stopping one execution, wherever it is: waiting, held, in flight, or beside its job's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.service import RPCError, RPCStatusCode

from api.connection import Connection
from api.jobs.changes import Changes
from api.jobs.executions import alive_rows, as_present, no_such_execution
from api.jobs.reading import any_view_of
from api.jobs.refs import Found
from api.jobs.tombstones import refuse_lost
from api.letters import Letters
from api.problem_table import LATER
from api.problems import Kind, ProblemError
from infra.database.errors import DatabaseError
from infra.database.executions import History
from workflows.contracts.actor import Actor
from workflows.contracts.base import rfc3339
from workflows.contracts.job import CancelRequest, InFlight, JobView
from workflows.contracts.names import SIGNAL_STOP, UPDATE_CANCEL, run_name, run_workflow_id
from workflows.contracts.records import ALIVE, AttemptRow, ExecutionRow, LastRun

log = logging.getLogger(__name__)

HISTORY_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An execution after the cancellation, as far as is known."""

    row: ExecutionRow
    attempts: tuple[AttemptRow, ...]
    in_flight: list[InFlight]
    revision: int


class Cancelling:
    def __init__(self, connection: Connection, changes: Changes, history: History, letters: Letters) -> None:
        self._connection = connection
        self._changes = changes
        self._history = history
        self._letters = letters

    async def cancel(self, found: Found, key: str, *, actor: Actor, now: datetime) -> Cancelled:
        """Raises 404 when there is no such execution, 409 saying how when it has ended."""
        async with self._changes.turn(found) as turn:
            request = CancelRequest(key=key, actor=actor)
            before: JobView | None = None
            try:
                before = await any_view_of(self._connection, found)
                changed = await turn.change(
                    UPDATE_CANCEL, request, update_id=f"cancel-{actor.operation}", now=now
                )
            except ProblemError as problem:
                if problem.kind is Kind.EXECUTION_ENDED:
                    raise await self._ended(found, key, before, now) from None
                if problem.kind in (Kind.NOT_FOUND, Kind.JOB_LOST):  # a run beside it may be there still
                    return await self._stop_alone(await turn.stored(), key, before, now)
                raise
        stored, attempts = await self._stored(found.tenant, key)
        row = _row_after(key, before, changed.view, stored, now)
        if row is None:
            raise await self._ended(found, key, changed.view, now)
        return Cancelled(row, attempts, changed.in_flight, changed.view.revision)

    async def _stop_alone(self, found: Found, key: str, view: JobView | None, now: datetime) -> Cancelled:
        """The job's workflow has ended: a run beside it, or a redrive since, is told by itself."""
        client = await self._connection.client()
        redriven_by = await self._letters.redriven_by(found.tenant, found.ref, key)
        beside = run_workflow_id(found.tenant, found.ref, run_name(key))
        for workflow_id in filter(None, (redriven_by, beside)):
            run = client.get_workflow_handle(workflow_id)
            try:
                await run.signal(SIGNAL_STOP, "asked")
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
            else:
                stored, attempts = await self._stored(found.tenant, key)
                if stored is None:
                    raise ProblemError(
                        Kind.DATABASE_UNAVAILABLE,
                        "The run was told to stop; its record cannot be read now.",
                        headers=LATER,
                    )
                return Cancelled(stored, attempts, [InFlight(key=key, state="stopping")], stored.revision)
        raise await self._ended(found, key, view, now)

    async def _ended(self, found: Found, key: str, view: JobView | None, now: datetime) -> ProblemError:
        """Why an execution that is not alive cannot be cancelled. ``view``: of a moment before."""
        last = view.last_run if view is not None else None
        if last is not None and last.key == key:
            return _has_ended(last)
        try:
            async with asyncio.timeout(HISTORY_WITHIN_S):
                stored = await self._history.get_execution(found.tenant, key)
        except (DatabaseError, TimeoutError):
            return ProblemError(
                Kind.DATABASE_UNAVAILABLE,
                "The execution is not alive; the database, which would say how it ended, does not answer.",
                headers=LATER,
            )
        if stored is not None:
            if stored.row.outcome in ALIVE:  # nobody will write its end
                await refuse_lost(self._connection, found)
            return _has_ended(stored.row)
        if view is not None and any(row.key == key for row in alive_rows(view, now)):
            return _ended_just_now()
        return no_such_execution()

    async def _stored(self, tenant: str, key: str) -> tuple[ExecutionRow | None, tuple[AttemptRow, ...]]:
        try:
            async with asyncio.timeout(HISTORY_WITHIN_S):
                stored = await self._history.get_execution(tenant, key)
        except (DatabaseError, TimeoutError) as error:
            log.info("%s is answered without its history: %s", key, error)
            return None, ()
        return (None, ()) if stored is None else (stored.row, stored.attempts)


def _ended_just_now() -> ProblemError:
    return ProblemError(Kind.EXECUTION_ENDED, "The execution has ended; its record follows.")


def _has_ended(row: ExecutionRow | LastRun) -> ProblemError:
    if row.outcome in ALIVE:  # its end has not been written yet
        return _ended_just_now()
    at = f" at {rfc3339(row.ended_at)}" if row.ended_at is not None else ""
    reason = f" ({row.reason})" if row.reason else ""
    return ProblemError(
        Kind.EXECUTION_ENDED,
        f"The execution has ended already: `{row.outcome}`{reason}{at}.",
        outcome=row.outcome,
    )


def _row_after(
    key: str, before: JobView | None, after: JobView, stored: ExecutionRow | None, now: datetime
) -> ExecutionRow | None:
    """The execution as the job knows it after the change; its stored row where that says the end."""
    was_alive = None if before is None else _find(alive_rows(before, now), key)
    is_alive = _find(alive_rows(after, now), key)
    if stored is not None:
        stored = as_present(stored, is_alive or was_alive)
        if stored.outcome not in ALIVE:
            return stored
    if is_alive is not None:
        return is_alive
    known = stored or was_alive
    last = after.last_run
    if last is not None and last.key == key and not _ended_before(last, was_alive):
        return ExecutionRow(
            fires_at=known.fires_at if known else last.scheduled_time,
            seq=0,
            revision=known.revision if known else after.revision,
            **last.model_dump(),
        )
    if known is None:
        return None
    return known.model_copy(update={"outcome": "cancelled", "reason": "asked", "ended_at": now})


def _ended_before(last: LastRun, alive: ExecutionRow | None) -> bool:
    """It is an earlier end under the key of what was alive."""
    return alive is not None and last.ended_at is not None and last.ended_at < alive.fires_at


def _find(rows: Sequence[ExecutionRow], key: str) -> ExecutionRow | None:
    return next((row for row in rows if row.key == key), None)
