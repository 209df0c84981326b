"""A job's side of its concurrency group, as transitions of its state.

The run holds its place from the grant to the end of the execution, over reaps and returns, and over
waits that a worker would hold it for; time is an argument, and nothing waits.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from workflows.contracts.errands import LeaveGroup
from workflows.contracts.group import GroupAsk, GroupGrant, GroupLeave, GroupPlace
from workflows.contracts.job import JobState, RunState
from workflows.domain import errands, look_ahead
from workflows.domain.active import is_unserved

BACKSTOP = timedelta(hours=1)
"""What an attempt is given beyond the time it can need (``workflows.attempt``)."""
WAITS = timedelta(hours=1)
"""Time in which workers may give a run back and hold it again before its place is asked for anew."""
ASK_AGAIN = (timedelta(minutes=1), timedelta(minutes=5))
"""A run that waits asks again, should its group have lost it: the longer it has waited the more seldom."""


def wanted(state: JobState) -> str | None:
    """The group in which the present run needs a place."""
    run = state.run
    return None if run is None or run.forced else state.definition.concurrency.group


def due(run: RunState) -> datetime:
    return run.fires_at if run.not_before is None else max(run.fires_at, run.not_before)


def settle(state: JobState, workflow_id: str, now: datetime) -> None:
    """Give back a place that the state does not need any more: its run has ended or was put back, the
    definition names another group, or the next attempt is farther away than a hold lasts."""
    place, run = state.place, state.run
    if place is None:
        return
    is_its_own = run is not None and run.occurrence.key == place.key and wanted(state) == place.group
    if run is None or not is_its_own or due(run) - now > _hold_limit(state):
        leave(state, workflow_id)


def leave(state: JobState, workflow_id: str) -> None:
    place = state.place
    if place is not None:
        _leave(
            state, GroupLeave(group=place.group, key=place.key, workflow_id=workflow_id, token=place.token)
        )
        state.place = None


def granted(state: JobState, grant: GroupGrant, workflow_id: str) -> None:
    """The group's word. A grant for a run that does not wait for it (any more) is given back."""
    place = state.place
    if place is None or (place.group, place.key) != (grant.group, grant.key):
        left = GroupLeave(group=grant.group, key=grant.key, workflow_id=workflow_id, token=grant.token)
        _leave(state, left)
    elif place.token is None or place.token < grant.token:
        state.place = place.model_copy(update={"token": grant.token, "until": grant.expires_at})


def holds(state: JobState, grant: GroupGrant) -> bool:
    """Whether the place that was granted is still held, be it under a later token."""
    place = state.place
    if place is None or (place.group, place.key) != (grant.group, grant.key):
        return False
    return place.token is not None and place.token >= grant.token


def is_late(state: JobState, run: RunState, now: datetime) -> bool:
    """Whether a run that is to ask for its place came too late for it. What may have been sent never does:
    its job may have joined the group behind that, and has to send it again."""
    if state.as_of_0_4 and not is_unserved(run):
        return False
    return run.not_after is not None and now > run.not_after


def has_place(state: JobState, run: RunState, now: datetime) -> bool:
    """Whether an attempt can begin: its place outlasts it, whatever becomes of it."""
    place = state.place
    if place is None or place.token is None:
        return False
    spent = now - run.started_at if run.started_at is not None else timedelta(0)
    longest = max(state.definition.max_duration - spent, timedelta(0)) + _leases(state) + BACKSTOP
    return place.until is None or max(due(run), now) + longest <= place.until


def asks(state: JobState, run: RunState, group: str, workflow_id: str, now: datetime) -> GroupAsk:
    """What to ask the group for a run that is due: from here on the run is active, and not late."""
    run.not_after = None
    run.group_since = run.group_since or now
    state.place = GroupPlace(group=group, key=run.occurrence.key)
    return GroupAsk(
        tenant=state.tenant,
        group=group,
        key=run.occurrence.key,
        workflow_id=workflow_id,
        at=now,
        lasts=state.definition.max_duration + _leases(state) + BACKSTOP + WAITS + _hold_limit(state),
    )


def is_leaving(state: JobState, key: str) -> bool:
    """Whether the group of this run has yet to be told that the run left."""
    return any(errand.kind == "leave_group" and errand.leave.key == key for errand in state.errands)


def ask_again_at(run: RunState, now: datetime) -> datetime:
    first, longest = ASK_AGAIN
    waited = timedelta(0) if run.group_since is None else now - run.group_since
    return now + max(first, min(waited, longest))


def _hold_limit(state: JobState) -> timedelta:
    return state.hints.look_ahead or look_ahead.HOLD_LIMIT


def _leases(state: JobState) -> timedelta:
    return state.definition.heartbeat_timeout * (state.definition.max_reaps + 1)


def _leave(state: JobState, left: GroupLeave) -> None:
    errands.add(state, LeaveGroup(tenant=state.tenant, leave=left))
