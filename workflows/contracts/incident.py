"""An incident: something a tenant should know of, from its first sign to its recovery."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import ConfigDict

from workflows.contracts.base import Contract, Instant

INSTALLATION = "-"
"""Stands for the tenant of an incident that concerns the installation; no tenant has this name."""
OPEN_A_TENANT = 1000
"""Open incidents of one tenant that are notified; further ones are recorded only."""
FORGOTTEN_AFTER = timedelta(days=30)
"""An incident of which nobody says that it is over is closed then, without a message."""
NOTIFY_FOR = timedelta(days=1)
"""How long a message is tried again."""
ROWS_MAX = 20
"""Rows that one workflow keeps while the database is away; beyond them the oldest goes."""

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


Message = Literal["opened", "recovered"]
Notice = Literal["pending", "delivered", "failed", "no_alert_url", "over_limit", "repeated"]
"""What became of a message. ``failed``: not within a day. ``repeated``: the incident had been told,
and was over, before; a word on it came twice."""


class Incident(Contract):
    """An incident as it is recorded and told; ``change`` grows with each change of it."""

    id: str
    tenant: str
    kind: IncidentKind
    subject: str
    job: str | None = None
    key: str | None = None
    """The execution that showed it last."""
    detail: str = ""
    count: int = 1
    """Words that said it is open, the first included."""
    opened_at: Instant
    last_at: Instant
    """The last word on it."""
    recovered_at: Instant | None = None
    closed_at: Instant | None = None
    """Set when it has recovered, or was forgotten."""
    notice: Notice = "pending"
    recovery_notice: Notice | None = None
    """Of the message on the recovery; None where none is owed."""
    change: int = 1


class IncidentState(Contract):
    """All an incident is. Mutable: its workflow is its only writer."""

    model_config = ConfigDict(frozen=False)

    incident: Incident
    following: IncidentWord | None = None
    """It opened again before everything was told and recorded of the one before."""
    unstored: list[Incident] = []
    """Rows that the database does not have yet, oldest first; one an incident."""
    telling: Incident | None = None
    """The incident as the message under way tells of it: every try is the same, also in a later history."""


class Notification(Contract):
    """What the notify activity is asked."""

    message: Message
    incident: Incident
