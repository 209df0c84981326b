"""Runs that a job has accepted and not begun."""

from __future__ import annotations

from workflows.contracts import names
from workflows.contracts.attempt import Occurrence
from workflows.contracts.job import JobState, ManualRun
from workflows.contracts.records import ExecutionRow


def manual_occurrence(state: JobState, manual: ManualRun) -> Occurrence:
    return Occurrence(
        key=names.manual_key(state.tenant, state.ref, manual.request),
        trigger="manual",
        scheduled_time=manual.at,
        fires_at=manual.at,
        body=manual.body,
    )


def waiting_rows(state: JobState) -> list[ExecutionRow]:
    """Manual runs, redrives and reruns that have been accepted and have not begun."""
    occurrences = [
        *(manual_occurrence(state, manual) for manual in state.triggers),
        *(queued.occurrence.model_copy(update={"fires_at": queued.at}) for queued in state.redrives),
    ]
    return [
        ExecutionRow(
            key=occurrence.key,
            scheduled_time=occurrence.scheduled_time,
            fires_at=occurrence.fires_at,
            trigger=occurrence.trigger,
            outcome="scheduled",
            seq=0,
            revision=state.revision,
        )
        for occurrence in occurrences
    ]


def alive_keys(state: JobState) -> set[str]:
    """Keys of all executions that are alive: waiting, in the loop, or beside it."""
    run = state.run
    in_loop = () if run is None else (run.occurrence.key,)
    return {*(row.key for row in (*waiting_rows(state), *state.beside)), *in_loop}
