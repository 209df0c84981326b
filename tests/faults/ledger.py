"""The receiver's log against what the executions API says of a job: what was promised, and what came.

Pure: instants are seconds since the epoch, and nothing is asked. A ledger that balances means: nothing
lost, every repeat recognisable, nothing early, and nothing side by side that must not be, except with a
delivery whose lease was lost, which is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.faults.accounts import AGAIN, ALIVE, NOT_RUN, Account, Balance, Finding, Row, Visit, clock
from tests.faults.again import run_again
from tests.faults.changes import changed
from tests.faults.crowds import Limit, crowded, of_backfills
from tests.faults.overlaps import overlaps
from tests.faults.reports import reported


def balance(
    accounts: Iterable[Account],
    *,
    groups: Iterable[Iterable[str]] = (),
    side_by_side: Iterable[str] = (),
    limits: Iterable[Limit] = (),
    frozen: Sequence[tuple[float, float]] = (),
    lease: float = 0,
) -> Balance:
    """Every account by itself. No two runs of a job may overlap, nor of two jobs of one of ``groups``;
    the runs of a job of ``side_by_side`` may, and never more than ``limits`` allow.

    ``frozen``: from when until when a worker stood still. What is stopped then ends with its lease, and
    the connection only when the worker goes on. ``lease``: seconds, of jobs with a callback.
    """
    found, by_job = Balance(), {account.job: account for account in accounts}
    for account in by_job.values():
        found.add(_single(account, lease))
    alone = [{job} for job in by_job if job not in set(side_by_side)]
    for jobs in (*alone, *(set(group) for group in groups)):
        found.add(overlaps([by_job[job] for job in sorted(jobs)], frozen))
    for limit in (*limits, *(one for account in by_job.values() for one in of_backfills(account))):
        found.add(crowded(limit, [by_job[job] for job in limit.members if job in by_job], frozen))
    return found


def _single(account: Account, lease: float) -> Balance:
    job, rows = account.job, {row.key: row for row in account.rows}
    found = Balance(planned=len(account.planned), deliveries=len(account.visits))
    found.findings += _unaccounted(account)
    found.findings += [
        Finding("lost", job, f"{key} was accepted and has no row") for key in account.asked if key not in rows
    ]
    visits: dict[str, list[Visit]] = {}
    for visit in sorted(account.visits, key=lambda one: one.start):
        visits.setdefault(visit.key, []).append(visit)
    for key, series in visits.items():
        found.findings += _early(job, series)
        _repeats(job, series, found)
        row = rows.get(key)
        if row is None:
            found.findings.append(Finding("unrecorded", job, f"{series[0]} has no row"))
        elif row.outcome in NOT_RUN:
            found.findings.append(Finding("contradicted", job, f"{series[0]} but the row says {row.outcome}"))
    for row in rows.values():
        if row.outcome in ALIVE:
            found.findings.append(Finding("unfinished", job, f"{row.key} is {row.outcome} still"))
        elif row.outcome == "succeeded" and row.count == 1:
            found.findings += _undelivered(job, row, visits.get(row.key, []))
        elif row.outcome == "dead_lettered":
            found.dead_lettered += row.count
        elif row.outcome == "skipped":
            found.skipped += row.count
        elif row.outcome == "missed":
            found.missed += row.count
    run_again(account, rows, visits, found)
    found.findings += changed(account, rows, visits)
    found.findings += reported(account, rows, visits, lease)
    return found


def _unaccounted(account: Account) -> list[Finding]:
    """Every planned instant has a row of its own or is counted in the row of a stretch.

    One that was skipped, say, and backfilled later has both; a row of its own says not whether it was.
    """
    job, findings = account.job, []
    scheduled = [row for row in account.rows if row.trigger in ("schedule", "catch_up")]
    again = {row.first for row in account.rows if row.occurrence and row.trigger in AGAIN}
    doubtful = again | set(account.perhaps)
    singles = {row.first for row in scheduled if row.count == 1} | again
    open_ones = [instant for instant in account.planned if instant not in singles]
    for row in scheduled:
        if row.count == 1:
            continue
        inside = [instant for instant in open_ones if row.first <= instant <= row.last]
        either = sum(row.first <= instant <= row.last for instant in doubtful)
        if not len(inside) <= row.count <= len(inside) + either:
            text = f"{row.outcome} row {row.key} counts {row.count}, {len(inside)} instants lie open in it"
            beyond = not account.planned or row.last > account.planned[-1]
            if not (beyond and len(inside) < row.count):  # it may reach past the end of the plan
                findings.append(Finding("lost", job, text))
        open_ones = [instant for instant in open_ones if not row.first <= instant <= row.last]
    return [*findings, *(Finding("lost", job, f"{clock(instant)} has no row") for instant in open_ones)]


def _undelivered(job: str, row: Row, series: Sequence[Visit]) -> list[Finding]:
    """A success is that of a delivery which the receiver has answered so."""
    answered = {(one.attempt, one.delivery) for one in series if one.status and 200 <= one.status < 300}
    ends = [(attempt, delivery) for attempt, delivery, outcome in row.attempts if outcome == "succeeded"]
    if len(ends) != 1:
        return [
            Finding("lost", job, f"{row.key} succeeded with {len(ends)} attempts that did: {row.attempts}")
        ]
    if ends[0] not in answered:
        return [
            Finding("lost", job, f"{row.key} succeeded by attempt, delivery {ends[0]}; answered: {answered}")
        ]
    return []


def _early(job: str, series: Sequence[Visit]) -> list[Finding]:
    early = [one for one in series if one.start < one.due]
    return [Finding("early", job, f"{one} by {one.due - one.start:.3f} s") for one in early]


def _repeats(job: str, series: Sequence[Visit], found: Balance) -> None:
    for before, after in pairwise(series):
        sent = [(one.attempt, one.delivery) for one in (before, after)]
        if sent[1] <= sent[0] or after.execution_id != f"{after.key}:{after.attempt}":
            found.findings.append(Finding("unrecognisable", job, f"{after} behind {before}"))
        elif after.attempt == before.attempt:
            found.again += 1
        else:
            found.retries += 1
