"""What ran side by side, and what may have: a delivery whose lease was lost, or that was stopped unheard.

Pure, as the ledger. Instants are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.faults.accounts import Account, Balance, Finding, Row, Visit

NOTICED_WITHIN = 0.3
"""Seconds within which a receiver notices that its client has gone."""


def overlaps(accounts: Sequence[Account], frozen: Sequence[tuple[float, float]]) -> Balance:
    """Two runs at once. One that has been superseded, since its lease was lost, may go on unheard."""
    found = Balance()
    rows = {row.key: row for account in accounts for row in account.rows}
    visits = sorted((one for account in accounts for one in account.visits), key=lambda one: one.start)
    newest: dict[str, int] = {}
    running: list[Visit] = []
    for visit in visits:
        newest[visit.execution_id] = max(newest.get(visit.execution_id, 0), visit.delivery)
        running = still_running(running, visit.start)
        for one in running:
            text = f"{one} beside {visit}"
            why = ended_unheard(one, visit.start, rows.get(one.key), newest, frozen)
            if why is not None:
                found.named.append(f"{why}: {text}")
            else:
                found.findings.append(Finding("overlap", visit.job, text))
        running.append(visit)
    return found


def still_running(visits: Sequence[Visit], at: float) -> list[Visit]:
    return [one for one in visits if one.over - (0.0 if one.status else NOTICED_WITHIN) > at]


def ended_unheard(
    visit: Visit, at: float, row: Row | None, newest: Mapping[str, int],
    frozen: Sequence[tuple[float, float]],
) -> str | None:  # fmt: skip
    """Why a visit that is still open ``at`` an instant may be one of a run that has ended; None: it is not.

    ``newest``: the highest delivery of each execution id that has come by then.
    """
    if newest[visit.execution_id] > visit.delivery or _lease_lost(visit, row):
        return f"lease of delivery {visit.delivery} lost"
    if _stopped(visit, row) and any(begin < at < end for begin, end in frozen):
        return f"delivery {visit.delivery} stopped while its worker stood still"
    return None


def _lease_lost(visit: Visit, row: Row | None) -> bool:
    """The history says that this delivery was not the last of its execution id, or that all were lost."""
    if row is None:
        return False
    later = any(a == visit.attempt and d > visit.delivery for a, d, _ in row.attempts)
    return later or row.reason == "leases_lost" or visit.attempt in row.lost


def _stopped(visit: Visit, row: Row | None) -> bool:
    """The row tells of the run that came last under its key, its attempts of all of them."""
    if row is None:
        return False
    mine = any(a == visit.attempt and outcome == "cancelled" for a, _, outcome in row.attempts)
    return mine or row.outcome in ("replaced", "cancelled")
