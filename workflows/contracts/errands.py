"""Errands: what a job has to tell other workflows. They wait in its state until they are done.

Every errand may be run twice, and late: whoever receives it tells by its content what is new.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workflows.contracts.base import Contract, Instant
from workflows.contracts.dead_letter import DeadLetter, LetterEnded
from workflows.contracts.group import GroupLeave
from workflows.contracts.incident import IncidentWord

ERRANDS_MAX = 100
"""Errands that wait in one state; beyond them the oldest word on an incident goes."""


class PutOff(Contract):
    """What became of an errand that was refused: it waits for its next try."""

    tries: int
    since: Instant
    """Of the first refusal."""
    until: Instant
    reason: str = ""
    """For people, of the last refusal."""


class _Errand(Contract):
    put_off: PutOff | None = None
    """None: it has not been refused."""


class OpenDeadLetter(_Errand):
    """Open it, or tell it, if it is open, that its redrive failed as well."""

    kind: Literal["open_dead_letter"] = "open_dead_letter"
    letter: DeadLetter


class TellDeadLetter(_Errand):
    """To a letter that there may be: nothing to do where there is none."""

    kind: Literal["tell_dead_letter"] = "tell_dead_letter"
    tenant: str
    ended: LetterEnded


class TellIncident(_Errand):
    kind: Literal["tell_incident"] = "tell_incident"
    word: IncidentWord


class LeaveGroup(_Errand):
    kind: Literal["leave_group"] = "leave_group"
    tenant: str
    leave: GroupLeave


Errand = Annotated[
    OpenDeadLetter | TellDeadLetter | TellIncident | LeaveGroup,
    Field(discriminator="kind"),
]


class RefusedErrand(Contract):
    place: int
    """In the batch, from 0."""
    reason: str = ""
    away: bool = False
    """The server was: it is not the errand's fault, and is over soon."""


class ErrandsRefused(Contract):
    """What is left of a batch; all others of it are done."""

    refused: list[RefusedErrand] = []
    untried: list[int] = []
    """Places of those behind a refused one to the same receiver, and of those without time."""
