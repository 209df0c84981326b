"""Which runs of a job are active: what the gate is asked about."""

from __future__ import annotations

from datetime import datetime

from workflows.contracts.job import JobState, RunState
from workflows.contracts.records import Trigger
from workflows.domain.gate import ActiveRun


def is_planned(trigger: Trigger) -> bool:
    """An occurrence of the schedule, on time or caught up."""
    return trigger in ("schedule", "catch_up")


def obeys_pause(trigger: Trigger) -> bool:
    """Not a run that somebody asked for by itself: a paused job can be triggered."""
    return is_planned(trigger) or trigger == "backfill"


def is_unserved(run: RunState) -> bool:
    """No request of this execution can have reached the target (since it was redriven)."""
    return run.attempt == run.first_attempt and run.started_at is None and run.deliveries == 0


def is_held(run: RunState, now: datetime) -> bool:
    """It waits for its instant, and can be put back as if it had never been begun."""
    return is_unserved(run) and run.fires_at > now


def of_loop(run: RunState, ended_at: datetime | None = None) -> ActiveRun:
    """The run of the job's loop; one that has not started yet is active from its instant on."""
    began = [at for at in (run.started_at, run.group_since) if at is not None]
    return ActiveRun(
        planned=is_planned(run.occurrence.trigger),
        fires_at=run.occurrence.fires_at,
        started_at=min(began, default=run.fires_at),
        ended_at=ended_at,
    )


def beside(state: JobState) -> list[ActiveRun]:
    """Runs beside the loop that the gate counts: not those that were forced past it."""
    return [
        ActiveRun(
            planned=is_planned(row.trigger),
            fires_at=row.fires_at,
            started_at=max(row.started_at or row.fires_at, row.fires_at),
        )
        for row in state.beside
        if not row.forced
    ]


def runs(state: JobState, now: datetime) -> list[ActiveRun]:
    """All that is active at ``now``."""
    run = state.run
    loop = [] if run is None or is_held(run, now) else [of_loop(run)]
    return [*loop, *beside(state)]
