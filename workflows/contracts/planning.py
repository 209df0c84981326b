"""What the planning activity is asked and what it answers."""

from __future__ import annotations

from typing import Literal

from workflows.contracts.backfill import Timing
from workflows.contracts.base import Contract, Duration, Instant
from workflows.contracts.schedule import CatchUp, ExceptWindow, Schedule


class Stretch(Contract):
    """Consecutive occurrences that are recorded as one row."""

    count: int
    first: Instant
    """Nominal instant of the first occurrence of the stretch."""
    last: Instant
    counted_all: bool = True
    """False when counting stopped at the planner's bound: ``count`` is then a lower bound."""


class PlannedOccurrence(Contract):
    """One future or due occurrence of a schedule."""

    scheduled_time: Instant
    """The nominal instant: what the key is made of."""
    fires_at: Instant
    """``scheduled_time`` moved by the job's stable spread."""
    not_after: Instant | None = None
    """A run whose first chance to fire lies after this instant is late (None: never)."""
    waited: bool = False
    """It fell due behind a run of its own job and waits by the gate's decision: no misfire."""


class TenantHints(Contract):
    """What workflows and workers need to know of a tenant's plan; never awaited from the database."""

    weight: float = 1.0
    pool: str = "default"
    paused: bool = False
    look_ahead: Duration | None = None
    """The hold limit L; None is the installation's."""


class LeftBehind(Contract):
    """What fell due by an old schedule and was not planned when an edit changed it: the planner counts it."""

    timing: Timing
    """The old schedule."""
    after: Instant
    until: Instant
    """Nominal instants, as ``after``; what lies at ``until`` belongs to it."""
    settled: list[Instant] = []
    outcome: Literal["missed", "skipped"] = "missed"
    reason: str | None = None


class PlanInput(Contract):
    """``schedule`` is a resolved one: no ``in``, an ``anchor`` wherever ``every`` is."""

    tenant: str
    job: str
    schedule: Schedule
    spread: Duration | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    except_: list[ExceptWindow] = []
    catch_up: CatchUp = CatchUp()
    after: Instant
    """The cursor: only occurrences with a later ``scheduled_time`` are planned."""
    settled: list[Instant] = []
    """Later occurrences that ran or were skipped while older ones waited: they are not counted again."""
    now: Instant
    passed_until: Instant | None = None
    """End of a pause: what fired at or before this instant is counted in ``passed``, never run."""
    late_until: Instant | None = None
    """A worker found occurrences up to this nominal instant late: they are left out."""
    blocked_since: Instant | None = None
    """Runs of the job held it up since this instant: the newest occurrence that fell due since then, or
    the newest ``queue`` of them, are not late, however long that took."""
    blocked_until: Instant | None = None
    """When that ended; what falls due from then on stands behind the line. None: now."""
    overdue_first: bool = False
    """What fell due before ``blocked_since`` and is not missed runs before the line is set up."""
    queue: int = 0
    """How many occurrences may wait in line (the policies ``queue``, ``allow`` and ``replace``)."""
    remaining: int | None = None
    """Scheduled runs still allowed by ``max_runs``."""
    left_behind: list[LeftBehind] = []
    """What edits left to be counted, oldest first."""
    limit: int = 50
    """At most this many occurrences in the answer."""


class Plan(Contract):
    """The next occurrences, ascending, all later than ``PlanInput.after``.

    ``passed``, ``missed`` and ``dropped`` lie before the first of them. ``cursor`` is the instant behind
    which everything is settled: the caller goes on from there when ``occurrences`` is empty.
    """

    occurrences: list[PlannedOccurrence] = []
    passed: Stretch | None = None
    missed: Stretch | None = None
    dropped: Stretch | None = None
    """Behind ``missed``: they waited in line, and newer ones took all the room there is."""
    cursor: Instant
    before_line: bool = False
    """All of these run before the line, which is set up by a later plan."""
    left_behind: list[Stretch | None] = []
    """One for each of ``PlanInput.left_behind``."""
    exhausted: bool = False
    """No occurrence follows the last one given here, ever."""
    tzdata: str = ""
    hints: TenantHints = TenantHints()
