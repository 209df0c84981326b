"""Whether what people asked for was done: triggers, reruns, backfills and redrives. Pure, as the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.faults.accounts import ALIVE, Account, Backfill, Balance, Finding, Row, Visit, clock, own_key

RUN_AGAIN = ("not delivered", "not backfilled", "miscounted", "not redriven", "letter", "went on")
"""The kinds of findings here."""
ENDS = ("succeeded", "dead_lettered", "cancelled")
"""What becomes of an occurrence that a backfill has begun."""
NEVER_SENT = frozenset({"leases_lost", "paused"})
"""Reasons of a dead letter that need not have reached the target."""


def run_again(
    account: Account, rows: Mapping[str, Row], visits: Mapping[str, Sequence[Visit]], found: Balance
) -> None:
    """Triggers, reruns, backfills and redrives did what was accepted."""
    job = account.job
    found.reruns += sum("+r" in key for key in account.asked)
    for key in account.asked:
        found.findings += _not_sent(job, rows.get(key), visits.get(key, []))
    for one in account.backfills:
        found.backfilled += one.told[-1]["started"]
        found.findings += _miscounted(job, one, rows)
        found.findings += _went_on(job, one, visits)
        for instant in one.instants if one.cancelled is None else ():
            found.findings += _not_backfilled(account, one, instant, rows, visits)
    for key, last in account.redriven.items():
        found.redriven += 1
        found.findings += _not_redriven(job, key, last, rows.get(key), visits.get(key, []))
    if account.letters is not None:
        found.findings += _letters(job, account.letters, rows)


def _not_sent(job: str, row: Row | None, series: Sequence[Visit]) -> list[Finding]:
    """A run that was not stopped, nor lost with all its workers, has reached its target."""
    if series or row is None or row.outcome in (*ALIVE, "replaced", "cancelled") or row.reason in NEVER_SENT:
        return []
    return [Finding("not delivered", job, f"{row.key} is {row.outcome} and never came")]


def _miscounted(job: str, one: Backfill, rows: Mapping[str, Row]) -> list[Finding]:
    """Its progress is complete, adds up, and never went back."""
    last, said = one.told[-1], []
    for earlier, later in pairwise(one.told):
        if any(later[name] < earlier[name] for name in ("started", *ENDS)):
            said.append(f"went back from {earlier} to {later}")
        if later["remaining"] > earlier["remaining"]:
            said.append(f"has more left: from {earlier} to {later}")
    if one.cancelled is not None and last["status"] == "cancelled":
        if last["started"] > one.cancelled["started"]:
            said.append(f"was cancelled with {one.cancelled}, and then began more: {last}")
    elif (last["status"], last["remaining"]) != ("done", 0):
        said.append(f"is not done: {last}")
    if last["status"] != "running" and sum(last[name] for name in ENDS) != last["started"]:
        said.append(f"has begun what has not ended: {last}")
    if one.cancelled is not None and last["status"] != one.cancelled["status"]:
        said.append(f"was answered to be {one.cancelled['status']}: {last}")
    if (
        one.only == "all"
        and last["status"] == "done"
        and not last["total"] == last["started"] == len(one.instants)
    ):
        said.append(f"has {len(one.instants)} occurrences in its range: {last}")
    if last["total"] > len(one.instants) or last["started"] > last["total"]:
        said.append(f"counts more than its range of {len(one.instants)}: {last}")
    mine = [row for row in rows.values() if row.key.endswith(f"+{one.id}")]
    if one.only == "all" and last["succeeded"] > sum(row.outcome == "succeeded" for row in mine):
        said.append(f"counts successes that have no row: {last}")
    return [Finding("miscounted", job, f"backfill {one.id} {what}") for what in said]


def _went_on(job: str, one: Backfill, visits: Mapping[str, Sequence[Visit]]) -> list[Finding]:
    """Nothing of it begins behind the answer that it is cancelled but what that names."""
    if one.cancelled is None or one.cancelled["in_flight"] is None:
        return []
    named = {running["key"] for running in one.cancelled["in_flight"]}
    return [
        Finding("went on", job, f"{series[0]} of backfill {one.id}, cancelled by {one.cancelled_at:.3f}")
        for key, series in visits.items()
        if key.endswith(f"+{one.id}") and series[0].start > one.cancelled_at and key not in named
    ]


def _not_backfilled(
    account: Account, one: Backfill, instant: float, rows: Mapping[str, Row],
    visits: Mapping[str, Sequence[Visit]],
) -> list[Finding]:  # fmt: skip
    """Of ``all`` each occurrence ran under the backfill's key, of ``missing`` under its own unless it had
    succeeded under another."""
    of_it = [row for row in rows.values() if row.first == instant and own_key(row.key)[-1:] == "Z"]
    if one.only == "all":
        mine = [row for row in of_it if row.key.endswith(f"Z+{one.id}")]
    elif any(row.outcome == "succeeded" and row.key != own_key(row.key) for row in of_it):
        return []
    else:
        mine = [row for row in of_it if row.occurrence]
    if not mine:
        what = f"backfill {one.id} of {one.only} has nothing of {clock(instant)}"
        return [Finding("not backfilled", account.job, what)]
    return _not_sent(account.job, mine[0], visits.get(mine[0].key, []))


def _not_redriven(job: str, key: str, last: int, row: Row | None, series: Sequence[Visit]) -> list[Finding]:
    """It has run again, with attempts behind those it had made."""
    if row is None or row.outcome in (*ALIVE, "replaced", "cancelled") or row.reason == "paused":
        return []  # lost or unfinished; or stopped, perhaps before its first step
    if any(one.attempt > last for one in series) or any(attempt > last for attempt in row.lost):
        return []
    what = f"{key} was redriven behind attempt {last}, and is {row.outcome} with {row.attempts}"
    return [Finding("not redriven", job, what)]


def _letters(job: str, letters: Mapping[str, str], rows: Mapping[str, Row]) -> list[Finding]:
    """What ended as a dead letter is one, until it has succeeded."""
    findings = [
        Finding("letter", job, f"{row.key} ended as a dead letter, and none is open")
        for row in rows.values()
        if row.outcome == "dead_lettered" and letters.get(row.key) != "open"
    ]
    for key, status in letters.items():
        row = rows.get(key)
        if row is None or row.outcome == "succeeded" or status != "open":
            findings.append(Finding("letter", job, f"{key} is {status}, its row {row and row.outcome}"))
    return findings
