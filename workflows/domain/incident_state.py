"""The transitions of an incident: what a word changes, what is owed to the tenant, when it is over.

All but :func:`begun` change the state they are given. Words may come twice, late and out of order.
"""

from __future__ import annotations

from datetime import datetime

from workflows.contracts.incident import (
    FORGOTTEN_AFTER,
    ROWS_MAX,
    Incident,
    IncidentState,
    IncidentWord,
    Message,
    Notice,
    Notification,
)
from workflows.contracts.names import incident_id


def begun(word: IncidentWord) -> IncidentState:
    """The state of an incident that this word opens."""
    incident = Incident(
        id=incident_id(word.tenant, word.kind, word.subject, word.at),
        tenant=word.tenant,
        kind=word.kind,
        subject=word.subject,
        job=word.job,
        key=word.key,
        detail=word.detail,
        opened_at=word.at,
        last_at=word.at,
    )
    return IncidentState(incident=incident, unstored=[incident])


def hear(state: IncidentState, word: IncidentWord) -> None:
    """A word on it. One that is no later than what is known already was said before."""
    incident = state.incident
    if incident.closed_at is not None:
        _hear_of_following(state, word, incident.last_at)
    elif word.open and word.at > incident.last_at:
        change(
            state,
            count=incident.count + 1,
            last_at=word.at,
            detail=word.detail,
            key=word.key or incident.key,
        )
    elif not word.open and word.at >= incident.last_at:
        change(
            state,
            recovered_at=word.at,
            closed_at=word.at,
            last_at=word.at,
            detail=word.detail or incident.detail,
        )


def _hear_of_following(state: IncidentState, word: IncidentWord, since: datetime) -> None:
    """It is over. What opens and ends before all is told of the one before is not told at all."""
    if not word.open:
        if state.following is not None and word.at >= state.following.at:
            state.following = None
    elif state.following is None and word.at > since:
        state.following = word


def begin_following(state: IncidentState) -> None:
    """The next incident of this kind and subject begins where the last one ended."""
    if state.following is not None:
        anew = begun(state.following)
        state.incident, state.following = anew.incident, None
        _keep(state, anew.incident)


def owed(incident: Incident) -> Message | None:
    """The message that is due now. They go in order, and none on the recovery of what was not told."""
    if incident.notice == "pending":
        return "opened"
    return "recovered" if incident.recovery_notice == "pending" else None


def notification(state: IncidentState, message: Message) -> Notification:
    """What is to be sent: of a message that is under way the same as before, whatever was heard since."""
    if state.telling is None:
        state.telling = state.incident
    return Notification(message=message, incident=state.telling)


def told(state: IncidentState, message: Message, notice: Notice, at: datetime) -> None:
    """A message has come to its end."""
    incident, state.telling = state.incident, None
    if message == "recovered":
        change(state, recovery_notice=notice)
    elif notice == "repeated":
        change(state, notice=notice, closed_at=incident.closed_at or at)
    else:
        change(state, notice=notice)


def forget(state: IncidentState, now: datetime) -> None:
    """Nobody will say any more that it is over."""
    if state.incident.closed_at is None and now >= forgotten_at(state.incident):
        change(state, closed_at=now)


def forgotten_at(incident: Incident) -> datetime:
    return incident.last_at + FORGOTTEN_AFTER


def change(state: IncidentState, **fields: object) -> None:
    """Change the incident, and keep the row that the database has to be given."""
    incident = state.incident.model_copy(update={**fields, "change": state.incident.change + 1})
    if incident.recovered_at is not None and incident.notice == "delivered":
        incident = incident.model_copy(update={"recovery_notice": incident.recovery_notice or "pending"})
    state.incident = incident
    _keep(state, incident)


def _keep(state: IncidentState, incident: Incident) -> None:
    others = [row for row in state.unstored if row.id != incident.id]
    state.unstored = [*others, incident][-ROWS_MAX:]


def stored(state: IncidentState, rows: list[Incident]) -> None:
    state.unstored = [row for row in state.unstored if row not in rows]


def describe(state: IncidentState) -> str:
    """Markdown for the Temporal UI."""
    incident = state.incident
    if incident.recovered_at is not None:
        status = f"recovered at {incident.recovered_at:%Y-%m-%d %H:%M:%S}Z"
    else:
        status = "open" if incident.closed_at is None else "forgotten"
    times = "once" if incident.count == 1 else f"{incident.count} times"
    lines = [
        f"**{incident.kind}**, {status}: {incident.detail}",
        f"since {incident.opened_at:%Y-%m-%d %H:%M:%S}Z, said {times}",
        f"message: {incident.notice}"
        + (f", of its recovery: {incident.recovery_notice}" if incident.recovery_notice else ""),
    ]
    if state.unstored:
        lines.append("its row waits for the database")
    return "\n\n".join(lines)
