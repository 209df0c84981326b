"""Running an execution that has ended once more, under a key of its own."""

from __future__ import annotations

from datetime import datetime

from api.connection import Connection
from api.jobs.changes import Changes, Turn
from api.jobs.executions import alive_rows, no_such_execution
from api.jobs.reading import any_view_of
from api.jobs.refs import Found
from api.jobs.tombstones import refuse_lost
from api.letters import Letters
from api.problem_table import LATER
from api.problems import FieldError, Kind, ProblemError
from infra.database.executions import History
from workflows.contracts.actor import Actor
from workflows.contracts.attempt import Occurrence, OwnBody
from workflows.contracts.job import JobView, RedriveRequest, Triggered
from workflows.contracts.names import (
    UPDATE_REDRIVE,
    opaque_id,
    parse_key,
    rerun_key,
    rerun_number,
    rerun_of,
)
from workflows.contracts.records import ALIVE, ExecutionRow


class Rerunning:
    def __init__(self, connection: Connection, changes: Changes, history: History, letters: Letters) -> None:
        self._connection = connection
        self._changes = changes
        self._history = history
        self._letters = letters

    async def rerun(
        self,
        found: Found,
        key: str,
        *,
        body: OwnBody | None,
        target_body: bool,
        force: bool,
        actor: Actor,
        now: datetime,
    ) -> Triggered:
        """Raises 404 when there is no such execution, 409 when it cannot be run again, 410 when its job
        has been deleted, 422 when the body of a manual run is not said, 503 without the database."""
        async with self._changes.turn(found) as turn:
            stored = await self._history.get_execution(found.tenant, key)
            view = await self._view(turn, known=stored is not None)
            row = _row(key, view, stored.row if stored is not None else None, now)
            await self._check(found, row)
            if body is None and not target_body and parse_key(key)[2].startswith("manual-"):
                raise _no_body()
            known = [*view.reruns, *(alive.key for alive in alive_rows(view, now))]
            of_it = [rerun_number(other) for other in known if rerun_of(other) == rerun_of(key)]
            last = max([await self._history.last_rerun(found.tenant, key), *of_it])
            request = RedriveRequest(
                occurrence=Occurrence(
                    key=rerun_key(key, last + 1),
                    trigger="rerun",
                    scheduled_time=row.scheduled_time,
                    fires_at=now,
                    body=body,
                ),
                force=force,
                actor=actor,
            )
            return await turn.send(UPDATE_REDRIVE, request, Triggered, update_id=f"rerun-{actor.operation}")

    async def _view(self, turn: Turn, *, known: bool) -> JobView:
        found = turn.found
        try:
            view = await any_view_of(self._connection, found, within=turn.look_within())
        except ProblemError as problem:
            if problem.kind is Kind.NOT_FOUND and known:
                await refuse_lost(self._connection, await turn.stored())
                raise _deleted(found.job) from None
            raise no_such_execution() if problem.kind is Kind.NOT_FOUND else problem from None
        if view is None:
            raise ProblemError(
                Kind.NO_ANSWER,
                "No worker answered in time, so nothing was run; start one, or try again.",
                headers=LATER,
            )
        if view.status == "deleted":
            raise _deleted(found.job)
        return view

    async def _check(self, found: Found, row: ExecutionRow) -> None:
        """Only what has run, and is at its end, is run again."""
        if row.outcome in ALIVE:
            await refuse_lost(self._connection, found)
            raise ProblemError(
                Kind.RUN_ACTIVE,
                f"The execution is alive (`{row.outcome}`): wait until it has ended.",
                active=row.key,
            )
        if row.outcome in ("skipped", "missed"):
            raise ProblemError(
                Kind.NOT_RERUNNABLE,
                f"It was {row.outcome} and never ran: trigger the job, or backfill the time it fell into.",
                outcome=row.outcome,
            )
        if row.outcome != "succeeded" and await self._letters.is_open(found.tenant, row.key):
            raise ProblemError(
                Kind.NOT_RERUNNABLE,
                "It is a dead letter: `POST /v1/dead-letters/{id}/redrive` goes on under the same key.",
                outcome=row.outcome,
                dead_letter=opaque_id(row.key),
            )


def _row(key: str, view: JobView, stored: ExecutionRow | None, now: datetime) -> ExecutionRow:
    """The execution as the job knows it, else as the history does."""
    for row in alive_rows(view, now):
        if row.key == key:
            return row
    last = view.last_run
    if last is not None and last.key == key:
        fires_at = stored.fires_at if stored is not None else last.scheduled_time
        return ExecutionRow(fires_at=fires_at, seq=0, revision=view.revision, **last.model_dump())
    if stored is None:
        raise no_such_execution()
    return stored


def _deleted(job: str) -> ProblemError:
    return ProblemError(
        Kind.GONE, f"The job `{job}` of this execution has been deleted, so nothing of it is run again."
    )


def _no_body() -> ProblemError:
    detail = (
        "A manual run may have had a body of its own, which is not kept: give `body` (null sends none), or "
        "`target_body: true` to send the body of the job's target."
    )
    return ProblemError(Kind.INVALID, detail, errors=[FieldError(pointer="/body", detail=detail)])
