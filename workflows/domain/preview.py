"""What a schedule would do: the data of ``POST /schedules/preview``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from workflows.contracts.schedule import ExceptWindow, Schedule
from workflows.domain.cron import hash_seed
from workflows.domain.describe import describe
from workflows.domain.errors import RuleError
from workflows.domain.recurrence import Kind, Recurrence, compile_schedule
from workflows.domain.resolve import initial_cursor, resolve

MAX_COUNT = 100


@dataclass(frozen=True, slots=True)
class PreviewOccurrence:
    """``local``: the wall clock of the schedule's zone in ISO 8601, with its offset.

    ``note``: why a clock change concerns this occurrence, else None.
    """

    scheduled_time: datetime
    fires_at: datetime
    local: str
    note: str | None


@dataclass(frozen=True, slots=True)
class Preview:
    """``kind`` is the answer's ``class``; ``schedule`` is the resolved one."""

    description: str
    kind: Kind
    occurrences: tuple[PreviewOccurrence, ...]
    schedule: Schedule
    timezone: str


def preview(
    schedule: Schedule,
    *,
    now: datetime,
    from_: datetime | None = None,
    count: int = 5,
    tenant: str = "",
    job: str = "",
    default_timezone: str | None = None,
    spread: timedelta | None = None,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    except_: Sequence[ExceptWindow] = (),
) -> Preview:
    """The first ``count`` occurrences of a job accepted at ``from_`` (``now`` when absent).

    The verdict is ``resolve``'s, so it is that of a creation at that instant.
    """
    if not 1 <= count <= MAX_COUNT:
        raise RuleError(f"`count` is 1 to {MAX_COUNT}", code="count_out_of_range", pointer="/count")
    accepted = now if from_ is None else from_
    resolved = resolve(
        schedule,
        now=accepted,
        default_timezone=default_timezone,
        tenant=tenant,
        job=job,
        spread=spread,
        starts_at=starts_at,
        ends_at=ends_at,
        except_=except_,
    )
    recurrence = compile_schedule(
        resolved,
        tenant=tenant,
        job=job,
        default_timezone=default_timezone,
        spread=spread,
        starts_at=starts_at,
        ends_at=ends_at,
        except_=except_,
    )
    return Preview(
        description=describe(resolved, recurrence.zone, hash_seed(tenant, job)),
        kind=recurrence.kind,
        occurrences=next_occurrences(recurrence, initial_cursor(resolved, accepted), count),
        schedule=resolved,
        timezone=recurrence.zone.name,
    )


def next_occurrences(recurrence: Recurrence, after: datetime, count: int) -> tuple[PreviewOccurrence, ...]:
    """The next ``count`` occurrences later than ``after``, as people read them."""
    return tuple(
        PreviewOccurrence(
            scheduled_time=scheduled_time,
            fires_at=recurrence.fires_at(scheduled_time),
            local=recurrence.local(scheduled_time).isoformat(),
            note=recurrence.note(scheduled_time),
        )
        for scheduled_time in islice(recurrence.forward(after), count)
    )
