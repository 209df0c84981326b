"""Errands: what a job has to tell other workflows. They wait in its state until they are done.

Every errand may be run twice, and late: whoever receives it tells by its content what is new.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workflows.contracts.base import Contract
from workflows.contracts.dead_letter import DeadLetter, LetterEnded
from workflows.contracts.group import GroupLeave
from workflows.contracts.incident import IncidentWord

ERRANDS_MAX = 100
"""Errands that wait in one state; beyond them the oldest word on an incident goes."""


class OpenDeadLetter(Contract):
    """Open it, or tell it, if it is open, that its redrive failed as well."""

    kind: Literal["open_dead_letter"] = "open_dead_letter"
    letter: DeadLetter


class TellDeadLetter(Contract):
    """To a letter that there may be: nothing to do where there is none."""

    kind: Literal["tell_dead_letter"] = "tell_dead_letter"
    tenant: str
    ended: LetterEnded


class TellIncident(Contract):
    kind: Literal["tell_incident"] = "tell_incident"
    word: IncidentWord


class LeaveGroup(Contract):
    kind: Literal["leave_group"] = "leave_group"
    tenant: str
    leave: GroupLeave


Errand = Annotated[
    OpenDeadLetter | TellDeadLetter | TellIncident | LeaveGroup,
    Field(discriminator="kind"),
]
