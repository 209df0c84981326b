"""The concurrency gate: what to do with an occurrence, given the runs that are in its way.

One table (docs/overlap.md). It is asked with the policy in force when the decision is
due, so a change of policy is settled by whatever is active then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from workflows.contracts.definition import Concurrency


class Decision(Enum):
    RUN = "run"
    SKIP = "skip"
    """Recorded as skipped, reason ``overlap``."""
    WAIT = "wait"
    """Runs when what is in its way has ended."""
    REPLACE = "replace"
    """What is active is stopped; it runs as soon as that has ended."""
    BESIDE = "beside"
    """Runs at once, beside what is active."""


@dataclass(frozen=True)
class ActiveRun:
    """A run that may be in the way. ``ended_at`` None: it is active still.

    Active is every run that is due and has not ended: in flight, waiting for a retry, for its group or
    for a worker. It swallows only what falls due from its start on: what fell due before, while no worker
    was there, is late, and that is a matter of catch-up.
    """

    planned: bool
    """An occurrence of the schedule, not a trigger, backfill, redrive or rerun."""
    fires_at: datetime
    started_at: datetime
    ended_at: datetime | None = None
    waited_until: datetime | None = None
    """When it left the line in which it stood behind another run of its job."""

    def meets(self, due: datetime) -> bool:
        """It was active at ``due``."""
        return self.started_at <= due and (self.ended_at is None or due < self.ended_at)

    def swallows(self, due: datetime, grace: timedelta) -> bool:
        """Whether an occurrence due then is skipped under ``forbid``.

        A run of another source, or one that itself started later than its grace, holds the occurrence up
        instead: a slow start must not cost the job its next run as well.
        """
        return self.meets(due) and self.planned and self.started_at - self.fires_at <= grace


def decide(
    concurrency: Concurrency, due: datetime, active: Sequence[ActiveRun], grace: timedelta
) -> Decision:
    """Decide about an occurrence of the schedule due at ``due``.

    ========= ============================ ===================================
    policy    active                       decision
    ========= ============================ ===================================
    any       nothing                      run
    forbid    a regular run                skip
    forbid    another source, or started   wait
              later than its grace
    queue     anything                     wait
    replace   runs of the schedule         replace
    replace   another source               wait
    allow     fewer than ``limit``         beside
    allow     ``limit``                    wait
    ========= ============================ ===================================
    """
    if concurrency.policy == "forbid" and any(run.swallows(due, grace) for run in active):
        return Decision.SKIP
    alive = [run for run in active if run.ended_at is None]
    if not alive:
        return Decision.RUN
    if concurrency.policy == "allow":
        return Decision.BESIDE if len(alive) < concurrency.limit else Decision.WAIT
    if concurrency.policy == "replace" and all(run.planned for run in alive):
        return Decision.REPLACE
    return Decision.WAIT


def admit(concurrency: Concurrency, active: Sequence[ActiveRun]) -> Decision:
    """Decide about a manual run that was asked for now. ``SKIP`` means that it is refused."""
    alive = len([run for run in active if run.ended_at is None])
    if alive == 0:
        return Decision.RUN
    if concurrency.policy == "allow" and alive < concurrency.limit:
        return Decision.BESIDE
    return {"forbid": Decision.SKIP, "replace": Decision.REPLACE}.get(concurrency.policy, Decision.WAIT)
