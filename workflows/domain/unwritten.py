"""What the database may not know yet of a job's executions, by the occurrence's own key.

The job's own records wait in its state. Those of a run beside its loop wait in that run's workflow, which
says so at its end, and again once they are written.
"""

from __future__ import annotations

from dataclasses import dataclass

from workflows.contracts import names
from workflows.contracts.job import UNWRITTEN_RUNS_MAX, JobState, RunEnded, UnwrittenRun


@dataclass(frozen=True)
class Told:
    """What a record that waits for the database says of the occurrence with this key."""

    succeeded: bool
    attempts: int
    """The highest that was sent."""

    def joined(self, other: Told) -> Told:
        return Told(self.succeeded or other.succeeded, max(self.attempts, other.attempts))


NOTHING = Told(succeeded=False, attempts=0)


def unwritten(state: JobState) -> dict[str, Told]:
    """What the database may not know yet, by the occurrence's own key.

    Look before a page is asked for and after it has come: in between records may reach the database.
    """
    found: dict[str, Told] = {}
    for record in state.records:
        key = record.execution.key if record.execution is not None else None
        if record.attempt is not None:
            key = record.attempt.execution_id.rpartition(":")[0]
        if key is None:
            continue
        own = names.occurrence_key(key)
        succeeded = record.execution is not None and record.execution.outcome == "succeeded"
        sent = record.attempt.attempt if record.attempt is not None and key == own else 0
        found[own] = found.get(own, NOTHING).joined(Told(succeeded, sent))
    for run in state.unwritten_runs:
        own = names.occurrence_key(run.key)
        found[own] = found.get(own, NOTHING).joined(Told(run.succeeded, run.attempts))
    return found


def told_at_end(state: JobState) -> UnwrittenRun | None:
    """Of a run beside its job's loop, whose state this is: what its job has to know; None: all is written."""
    if state.last_run is None or not state.records:
        return None
    own = names.occurrence_key(state.last_run.key)
    known = unwritten(state).get(own, NOTHING)
    return UnwrittenRun(key=state.last_run.key, succeeded=known.succeeded, attempts=known.attempts)


def remember(state: JobState, end: RunEnded) -> None:
    """What a run beside the loop says of its records, at its end or behind it."""
    others = [one for one in state.unwritten_runs if one.key != end.last_run.key]
    known = [] if end.unwritten is None else [end.unwritten]
    state.unwritten_runs = [*others, *known][-UNWRITTEN_RUNS_MAX:]
