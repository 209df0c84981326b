"""An incident: something a tenant should know of, from its first sign to its recovery."""

from __future__ import annotations

from typing import Literal

from workflows.contracts.base import Contract, Instant

IncidentKind = Literal[
    "dead_letter",
    "missed",
    "consecutive_skips",
    "consecutive_failures",
    "paused_after_failures",
    "lease_lost",
    "no_success",
    "clock_ahead",
]


class IncidentWord(Contract):
    """What a job (or a worker) says of an incident; said twice, it is one message still."""

    tenant: str
    kind: IncidentKind
    subject: str
    """What it is about, part of the incident's id: the ref of a job, else a name of the kind's own."""
    job: str | None = None
    """The job's id."""
    open: bool
    """False: it is over."""
    detail: str = ""
    """For people: what happened, in one sentence."""
    key: str | None = None
    """The execution that shows it."""
    at: Instant


class OpenIncident(Contract):
    """What a job remembers of an incident it has opened."""

    kind: IncidentKind
    since: Instant
