"""Which runs of a job are active: what the gate is asked about."""

from __future__ import annotations

from datetime import datetime, timedelta

from workflows.contracts.job import BesideRun, JobState, RunState
from workflows.contracts.records import Trigger
from workflows.domain.gate import ActiveRun

DOUBT_AFTER = timedelta(minutes=5)
"""A silent run beside the loop is in doubt so long after its first attempt must have ended …"""
DOUBT_AT_LATEST = timedelta(hours=1)
"""… or at this age …"""
DOUBT_AGAIN = timedelta(minutes=15)
"""… and again at twice its age, but all of them together no more often than this."""


def is_planned(trigger: Trigger) -> bool:
    """An occurrence of the schedule, on time or caught up."""
    return trigger in ("schedule", "catch_up")


def obeys_pause(trigger: Trigger) -> bool:
    """Not a run that somebody asked for by itself: a paused job can be triggered."""
    return is_planned(trigger) or trigger == "backfill"


def is_paused(state: JobState, now: datetime) -> bool:
    """A pause may have run out before anybody could end it."""
    return state.pause is not None and (state.pause.until is None or now < state.pause.until)


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
        waited_until=run.waited_until,
    )


def beside(state: JobState) -> list[ActiveRun]:
    """Runs beside the loop that the gate counts: not those that were forced past it."""
    return [
        ActiveRun(
            planned=is_planned(row.trigger),
            fires_at=row.fires_at,
            started_at=max(row.started_at or row.begun_at or row.fires_at, row.fires_at),
            waited_until=row.waited_until,
        )
        for row in state.beside
        if not row.forced
    ]


def runs(state: JobState, now: datetime) -> list[ActiveRun]:
    """All that is active at ``now``."""
    run = state.run
    loop = [] if run is None or is_held(run, now) else [of_loop(run)]
    return [*loop, *beside(state)]


# -- runs beside the loop that stay silent ---------------------------------------------------------


def in_doubt(state: JobState, now: datetime) -> list[BesideRun]:
    """Runs beside the loop that should have told their end, or last long; the server knows which."""
    patience = _patience(state)
    return [row for row in _sure(state) if row.fires_at + patience <= now]


def doubt_at(state: JobState, asked_at: datetime | None) -> datetime | None:
    """When to ask after those in doubt, who were asked after last at ``asked_at``; None: nobody can be."""
    patience = _patience(state)

    def next_doubt(row: BesideRun) -> datetime:
        first = row.fires_at + patience
        return first if asked_at is None or asked_at < first else asked_at + (asked_at - row.fires_at)

    nearest = min((next_doubt(row) for row in _sure(state)), default=None)
    return nearest if nearest is None or asked_at is None else max(nearest, asked_at + DOUBT_AGAIN)


def _sure(state: JobState) -> list[BesideRun]:
    return [row for row in state.beside if row.unsure is None]


def _patience(state: JobState) -> timedelta:
    definition = state.definition
    leases = definition.heartbeat_timeout * (definition.max_reaps + 1)
    return min(definition.timeout + leases + DOUBT_AFTER, DOUBT_AT_LATEST)
