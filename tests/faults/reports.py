"""Whether what a target with a callback said was heeded. Pure, as the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.faults.accounts import Account, Finding, Row, Visit

REPORTED = ("unheeded", "reaped alive")
"""The kinds of findings here."""
TAKEN_AS = {"complete": "succeeded", "fail": "failed"}


def reported(
    account: Account, rows: Mapping[str, Row], visits: Mapping[str, Sequence[Visit]], lease: float
) -> list[Finding]:
    """A report that was taken is the end of its attempt, one that was refused is none; and no delivery
    follows one whose lease was renewed. ``lease``: seconds."""
    findings = []
    for key, series in visits.items():
        row = rows.get(key)
        told = {(attempt, delivery): outcome for attempt, delivery, outcome in row.attempts} if row else {}
        for one in series:
            said, outcome = one.report, told.get((one.attempt, one.delivery))
            if said in TAKEN_AS and outcome != TAKEN_AS[said]:
                findings.append(Finding("unheeded", account.job, f"{one} said {said}, its record {outcome}"))
            if said == "refused" and outcome == "succeeded":
                what = f"{one} was refused its report, and its record says {outcome}"
                findings.append(Finding("unheeded", account.job, what))
        findings += [
            Finding(
                "reaped alive",
                account.job,
                f"{after} {after.start - before.beat:.3f} s after a beat of {before}",
            )
            for before in series
            for after in series
            if (after.attempt, after.delivery) == (before.attempt, before.delivery + 1)
            and before.beat is not None
            and after.start - before.beat < lease
        ]
    return findings
