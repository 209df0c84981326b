"""The concurrency gate: what to do with an occurrence, given the run that was active when it fell due.

One table (semantics.md, Concurrency policy); ``forbid`` is the policy built so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum


class Decision(Enum):
    RUN = "run"
    SKIP = "skip"
    """Recorded as skipped, reason ``overlap``."""
    WAIT = "wait"
    """Runs when the active run has ended."""


@dataclass(frozen=True)
class ActiveRun:
    """The run that may be in the way. ``ended_at`` None: it is active still."""

    scheduled: bool
    """It is a regular occurrence of the schedule, not a trigger, backfill, redrive or catch-up."""
    fires_at: datetime
    started_at: datetime
    ended_at: datetime | None = None


def decide(due: datetime, active: ActiveRun | None, grace: timedelta) -> Decision:
    """Decide under ``forbid`` about the occurrence due at ``due``.

    A run of another source, or one that itself started later than its grace, holds the occurrence
    up instead of swallowing it.
    """
    if active is None:
        return Decision.RUN
    in_the_way = active.started_at <= due and (active.ended_at is None or due < active.ended_at)
    on_time = active.scheduled and active.started_at - active.fires_at <= grace
    if in_the_way and on_time:
        return Decision.SKIP
    return Decision.RUN if active.ended_at is not None else Decision.WAIT
