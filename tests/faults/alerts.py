"""The alert receiver's log against the incidents that were recorded, and those that must have been.

Pure, as :mod:`tests.faults.ledger`. Promised is (docs/incidents.md): each incident that was opened is told
at least once, its recovery too, behind it, and every try of a message has the same body. Not promised is a
number of incidents: one that opens and ends while the one before it waits to be told is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.accounts import Account, Finding

RECOVERED = "-recovered"
TOLD = ("untold", "unheard of", "reworded", "recovered before it opened", "unopened")
"""The kinds of findings here."""
NOBODYS_NEWS = frozenset({"paused", "deleted", "edited"})
"""Reasons of a dead letter, or a miss, that opens no incident."""


@dataclass
class Message:
    """One try of one message as the receiver saw it."""

    id: str
    """Its ``webhook-id``."""
    body: Mapping[str, Any]
    start: float
    status: int | None = None
    """What it was answered; None: nothing."""

    @property
    def job(self) -> str:
        return str(self.body["job"])

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True)
class IncidentRow:
    """An incident as it was written down."""

    id: str
    kind: str
    job: str
    notice: str
    recovery_notice: str | None
    recovered: bool

    @property
    def waits(self) -> bool:
        """Whether a message of it is still to come."""
        return self.notice == "pending" or (self.recovered and self.recovery_notice in (None, "pending"))


def tell(incidents: Sequence[IncidentRow], messages: Sequence[Message]) -> list[Finding]:
    """``untold``, ``unheard of``, ``reworded`` or ``recovered before it opened``."""
    findings: list[Finding] = []
    tries: dict[str, list[Message]] = {}
    for message in sorted(messages, key=lambda one: one.start):
        tries.setdefault(message.id, []).append(message)
    known = {incident.id for incident in incidents}
    for id_, series in tries.items():
        first = series[0]
        findings += [
            Finding("reworded", one.job, f"{id_} said {first.body} and then {one.body}")
            for one in series
            if one.body != first.body
        ]
        if id_.removesuffix(RECOVERED) not in known:
            findings.append(Finding("unheard of", first.job, f"{id_} is no incident that has a row"))
        if id_.endswith(RECOVERED):
            opening = tries.get(id_.removesuffix(RECOVERED), [])
            if not any(one.taken and one.start <= first.start for one in opening):
                findings.append(Finding("recovered before it opened", first.job, str(first.body)))
    for incident in incidents:
        owed = [incident.id, *([incident.id + RECOVERED] if incident.recovered else [])]
        findings += [
            Finding("untold", incident.job, f"{id_}, {incident.kind}: {incident}")
            for id_ in owed
            if not any(one.taken for one in tries.get(id_, []))
        ]
    return findings


def unopened(accounts: Iterable[Account], incidents: Sequence[IncidentRow]) -> list[Finding]:
    """``unopened``: what a job's rows tell of must have opened an incident of that kind, once at least."""
    opened = {(incident.job, incident.kind) for incident in incidents}
    findings = []
    for account in accounts:
        told = {
            kind
            for row in account.rows
            for outcome, kind in (("dead_lettered", "dead_letter"), ("missed", "missed"))
            if row.outcome == outcome and row.reason not in NOBODYS_NEWS
        }
        findings += [
            Finding("unopened", account.job, f"no incident {kind}, though a row tells of it")
            for kind in sorted(told)
            if (account.job, kind) not in opened
        ]
    return findings
