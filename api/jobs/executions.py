"""From the opaque id of an execution to its job."""

from __future__ import annotations

from datetime import datetime

from api.jobs.refs import Found
from api.problems import Kind, ProblemError
from workflows.contracts.job import JobView
from workflows.contracts.names import job_of, key_of, parse_key, scheduled_key
from workflows.contracts.records import ALIVE, ExecutionRow


def no_such_execution() -> ProblemError:
    return ProblemError(Kind.NOT_FOUND, "There is no such execution.")


def locate(execution_id: str, tenant: str) -> tuple[Found, str]:
    """The job's generation and the key, from the id alone. Raises 404 for what is no id of the tenant."""
    try:
        key = key_of(execution_id)
        owner, ref, _ = parse_key(key)
    except ValueError:
        raise no_such_execution() from None
    if owner != tenant:
        raise no_such_execution()
    return Found(tenant, job_of(ref)[0], ref), key


def alive_rows(view: JobView, now: datetime) -> list[ExecutionRow]:
    """What the job is busy with and what waits behind it, newest first."""
    current = [] if view.current is None else [_as_of(view.current, now)]
    beside = [_as_of(row, now) for row in reversed(view.beside)]
    waiting = [row.model_copy(update={"outcome": "queued"}) for row in reversed(view.waiting)]
    return [*_in_line(view, now), *waiting, *beside, *current]


def as_present(stored: ExecutionRow, alive: ExecutionRow | None) -> ExecutionRow:
    """The history's row of an execution as it is now; ``alive``: its job's word, if it is alive.

    A redrive, or a backfill under the occurrence's own key, writes nothing before it is sent: until then the
    history tells how it ended the last time.
    """
    if alive is None:
        return stored
    if stored.outcome in ALIVE:
        return stored.model_copy(update={"outcome": "queued"}) if alive.outcome == "queued" else stored
    if stored.ended_at is None or alive.fires_at < stored.ended_at:
        return stored  # the end of this very run, of which the job has not heard yet
    again = {"trigger": alive.trigger, "outcome": alive.outcome, "revision": alive.revision}
    return stored.model_copy(update={**again, "ended_at": None, "reason": None})


def _in_line(view: JobView, now: datetime) -> list[ExecutionRow]:
    """What is due and waits behind other runs of its job, newest first; under ``forbid`` nothing does."""
    concurrency = view.definition.concurrency
    busy = view.current is not None or view.beside
    if concurrency.policy == "forbid" or not busy or view.pause is not None:
        return []
    taken = {row.key for row in (*view.beside, *view.waiting)} | {view.current.key if view.current else ""}
    due = [
        ExecutionRow(
            key=scheduled_key(view.tenant, view.ref, one.scheduled_time),
            scheduled_time=one.scheduled_time,
            fires_at=one.fires_at,
            outcome="queued",
            seq=0,
            revision=view.revision,
        )
        for one in view.plan
        if one.fires_at <= now and one.scheduled_time not in view.skips
    ]
    return [row for row in reversed(due) if row.key not in taken][: concurrency.max_queued]


def _as_of(current: ExecutionRow, now: datetime) -> ExecutionRow:
    """A query cannot see whether a held run's instant has come; whoever reads compares clocks."""
    if current.outcome in ("held", "retrying") and current.fires_at <= now:
        return current.model_copy(update={"outcome": "running"})
    return current
