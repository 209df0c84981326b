"""Whether more ran at once than a limit allowed: of a job, of a backfill, or of a group.

Pure, as the ledger. Instants are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.accounts import Account, Balance, Finding, Row, Visit
from tests.faults.overlaps import ended_unheard, still_running

GRANTED_WITHIN = 60.0
"""Seconds a run without an instant of its own may have had its place before it came."""
SETTLED = 15.0
"""Seconds from a job's joining a group until such a run is surely one that was accepted behind it."""


@dataclass
class Limit:
    """At most so many runs at once."""

    name: str
    places: list[tuple[float, float, int]] = field(default_factory=list)
    """From when until when how many; those of a change that is on its way overlap."""
    members: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """From when until when each job was under it for sure."""
    suffix: str = ""
    """Of the keys concerned."""

    def most(self, begin: float, end: float) -> float:
        """A lower limit takes no run's place away, so the highest in that time counts."""
        return max(
            (most for since, until, most in self.places if since <= end and until >= begin), default=math.inf
        )

    def counts(self, visit: Visit, first: Visit) -> bool:
        """Whether a visit of the run that came first with ``first`` needed a place. Retries follow the newest
        definition: those behind a job's leaving need none."""
        asked = first.due if first.due > -math.inf else first.start - SETTLED
        return visit.key.endswith(self.suffix) and any(
            since < asked and visit.start < until for since, until in self.members.get(visit.job, ())
        )


def of_backfills(account: Account) -> list[Limit]:
    """What each backfill under keys of its own was allowed to have at once."""
    return [
        Limit(
            f"backfill {one.id}",
            places=[(-math.inf, math.inf, one.max_concurrent)],
            members={account.job: [(-math.inf, math.inf)]},
            suffix=f"+{one.id}",
        )
        for one in account.backfills
        if one.only == "all"
    ]


def crowded(limit: Limit, accounts: Iterable[Account], frozen: Sequence[tuple[float, float]]) -> Balance:
    """Whenever a run came first, those beside it. One whose lease was lost, or that was stopped, may go on
    unheard, and is none of them."""
    found, rows, firsts = Balance(), dict[str, Row](), dict[str, Visit]()
    for account in accounts:
        rows |= {row.key: row for row in account.rows}
    visits = sorted((one for account in accounts for one in account.visits), key=lambda one: one.start)
    newest: dict[str, int] = {}
    running: list[Visit] = []
    for visit in visits:
        is_first = visit.key not in firsts
        firsts.setdefault(visit.key, visit)
        newest[visit.execution_id] = max(newest.get(visit.execution_id, 0), visit.delivery)
        if not limit.counts(visit, firsts[visit.key]):
            continue
        running = still_running(running, visit.start)
        beside = {
            one.key for one in running
            if not ended_unheard(one, visit.start, rows.get(one.key), newest, frozen)
        } - {visit.key}  # fmt: skip
        asked = visit.due if visit.due > -math.inf else visit.start - GRANTED_WITHIN
        most = limit.most(asked, visit.start)
        if is_first and len(beside) + 1 > most:
            text = f"{visit} beside {sorted(beside)}, where {limit.name} allows {most:.0f}"
            found.findings.append(Finding("crowded", visit.job, text))
        running.append(visit)
    return found
