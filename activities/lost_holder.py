"""What a holder learns of the one that lost the run before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from temporalio import activity

from workflows.contracts.attempt import NATIVE_RETRY, START_COUNTS_FOR, AttemptInput, HeartbeatDetails


@dataclass(frozen=True, slots=True)
class Inherited:
    """How far the execution has come, with whoever held it."""

    deliveries: int
    reaps: int
    started_at: datetime | None
    lateness_ms: int | None
    reaped: bool = False
    """The previous holder lost its lease after it may have fired."""
    over: HeartbeatDetails | None = None
    """The last word of a run that was with its target until its time was used up: no reap, but its end."""


def inherit(inp: AttemptInput, info: activity.Info) -> Inherited:
    """From the job's own count, and from the last beat of a holder that the server gave up."""
    known = Inherited(inp.deliveries, inp.reaps, inp.first_started_at, inp.first_lateness_ms)
    if info.attempt == 1:
        return known
    lost = HeartbeatDetails.model_validate(info.heartbeat_details[0]) if info.heartbeat_details else None
    over = lost if lost is not None and lost.ends_at and info.started_time >= lost.ends_at else None
    silent = _may_have_fired_in_silence(inp, info, lost)
    reaped = silent or (
        lost is not None
        and over is None
        and lost.phase == "fired"
        and lost.native_attempt == info.attempt - 1
    )
    if lost is None:
        lost_deliveries, lost_reaps, lost_start, lost_lateness = 0, 0, None, None
    else:
        lost_deliveries, lost_reaps = lost.deliveries, lost.reaps
        lost_start, lost_lateness = lost.started_at, lost.lateness_ms
    return Inherited(
        deliveries=max(known.deliveries, lost_deliveries) + silent,
        reaps=max(known.reaps, lost_reaps) + reaped,
        started_at=known.started_at or lost_start,
        lateness_ms=lost_lateness if known.lateness_ms is None else known.lateness_ms,
        reaped=reaped,
        over=over,
    )


def _may_have_fired_in_silence(inp: AttemptInput, info: activity.Info, lost: HeartbeatDetails | None) -> bool:
    """The first holder needs no fence where its start is one, so it may die between its write and its first
    word. Every later holder fences, and so says what it is about to do, but may die before that as well.

    A holder that says nothing lives for a lease, so the first one began as many leases ago as there were
    holders, or earlier; one that began before its instant was to hold, and to fence.
    """
    if lost is not None:
        return lost.phase == "held" and lost.unfenced
    silent = info.attempt - 1
    last_lost_at = info.current_attempt_scheduled_time - NATIVE_RETRY
    lease = info.heartbeat_timeout or inp.definition.heartbeat_timeout
    first_began = last_lost_at - silent * lease - (silent - 1) * NATIVE_RETRY
    return first_began >= inp.fires_at - START_COUNTS_FOR
