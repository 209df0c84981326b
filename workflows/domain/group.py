"""The places of a concurrency group, as transitions of its state (docs/groups.md).

All of them change the state they are given, and answer with the places they granted, whose holders have
to be told. Time is an argument, and nothing waits. A place is told from the one its run had before by
its token: giving back an older one changes nothing (a lock without it ends in runs that free the locks
of others).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from workflows.contracts.base import rfc3339
from workflows.contracts.group import (
    GROUP_QUEUE_MAX,
    GROUP_SHOWN,
    GroupAsk,
    GroupHolder,
    GroupLeave,
    GroupState,
    GroupView,
    GroupWaiting,
)

FIRST_QUESTION = timedelta(seconds=15)
"""A holder is asked whether it still holds its place when it has been silent for so long …"""
LATER_QUESTION = timedelta(minutes=1)
"""… then after as long again, up to this, and for long holders up to …"""
QUESTION_SHARE = 60
"""… this part of the time it has held: some hundreds of questions at most, whatever a run lasts."""


def ask(state: GroupState, asked: GroupAsk, now: datetime) -> list[GroupHolder]:
    """Queue a run, once. One that has a place gets it anew, with a token that makes the old one stale:
    it asks because it knows of no place, so that what it gave back may still be on its way."""
    granted = expire(state, now)
    held = _place_of(state, asked.key, asked.workflow_id)
    if held is not None:
        renewed = _grant(state, GroupWaiting(**_who(asked), at=asked.at, lasts=asked.lasts), now)
        state.holders = [renewed if holder is held else holder for holder in state.holders]
        return [*(holder for holder in granted if holder is not held), renewed]
    known = any(_is_of(one, asked.key, asked.workflow_id) for one in state.waiting)
    if not known and len(state.waiting) < GROUP_QUEUE_MAX:
        state.waiting.append(GroupWaiting(**_who(asked), at=asked.at, lasts=asked.lasts))
    return [*granted, *_fill(state, now)]


def leave(state: GroupState, left: GroupLeave, now: datetime) -> list[GroupHolder]:
    """A place is given back, or a run stops waiting."""
    if left.token is None:
        state.waiting = [one for one in state.waiting if not _is_of(one, left.key, left.workflow_id)]
        return []
    return release(state, [left.token], now)


def release(state: GroupState, tokens: Collection[int], now: datetime) -> list[GroupHolder]:
    """These places are free, if they are still held under these tokens."""
    state.holders = [holder for holder in state.holders if holder.token not in tokens]
    return _fill(state, now)


def expire(state: GroupState, now: datetime) -> list[GroupHolder]:
    """What no run can need any longer is free, whatever its holder says."""
    return release(state, [holder.token for holder in state.holders if holder.expires_at <= now], now)


def set_limit(state: GroupState, limit: int, now: datetime) -> list[GroupHolder]:
    """A lower limit takes nobody's place away: it only grants no more until there is room."""
    state.limit, state.limit_at = limit, now
    return _fill(state, now)


def told(state: GroupState, tokens: Collection[int]) -> None:
    """These grants have reached their workflows."""
    state.holders = [
        holder.model_copy(update={"told": True}) if holder.token in tokens else holder
        for holder in state.holders
    ]


def untold(state: GroupState) -> list[GroupHolder]:
    return [holder for holder in state.holders if not holder.told]


def questioned(state: GroupState, tokens: Collection[int], now: datetime) -> None:
    """These holders are being asked whether they still hold their places."""
    state.holders = [
        holder.model_copy(update={"asked_at": now}) if holder.token in tokens else holder
        for holder in state.holders
    ]


def silent(state: GroupState, now: datetime) -> list[GroupHolder]:
    """The holders to ask now; nobody is asked as long as nobody waits for a place."""
    if not state.waiting:
        return []
    return [holder for holder in state.holders if holder.told and _next_question(holder) <= now]


def look_again_at(state: GroupState, now: datetime) -> datetime:
    """When a holder may have to be asked, or a place expires: within a minute, not before a second."""
    moments = [min(_next_question(holder), holder.expires_at) for holder in state.holders]
    return max(min([*moments, now + LATER_QUESTION]), now + timedelta(seconds=1))


def view(state: GroupState, *, deleted: bool = False) -> GroupView:
    return GroupView(
        limit=state.limit,
        limit_at=state.limit_at,
        holders=state.holders[:GROUP_SHOWN],
        held=len(state.holders),
        waiting=state.waiting[:GROUP_SHOWN],
        queued=len(state.waiting),
        deleted=deleted,
    )


def describe(state: GroupState) -> str:
    """Markdown for the Temporal UI."""
    lines = [f"**{len(state.holders)} of {state.limit}** places taken, {len(state.waiting)} runs wait"]
    lines += [
        f"held: `{holder.key}` since {rfc3339(holder.granted_at)}, token {holder.token}"
        for holder in state.holders[:10]
    ]
    lines += [f"waits: `{one.key}` since {rfc3339(one.at)}" for one in state.waiting[:10]]
    return "\n\n".join(lines)


def _fill(state: GroupState, now: datetime) -> list[GroupHolder]:
    """Grant what is free to those who have waited longest."""
    granted = []
    while state.waiting and len(state.holders) < state.limit:
        granted.append(_grant(state, state.waiting.pop(0), now))
        state.holders.append(granted[-1])
    return granted


def _grant(state: GroupState, one: GroupWaiting, now: datetime) -> GroupHolder:
    state.last_token += 1
    return GroupHolder(
        key=one.key,
        workflow_id=one.workflow_id,
        token=state.last_token,
        granted_at=now,
        expires_at=now + one.lasts,
    )


def _next_question(holder: GroupHolder) -> datetime:
    if holder.asked_at is None:
        return holder.granted_at + FIRST_QUESTION
    held = holder.asked_at - holder.granted_at
    return holder.asked_at + max(FIRST_QUESTION, min(held, LATER_QUESTION), held / QUESTION_SHARE)


def _place_of(state: GroupState, key: str, workflow_id: str) -> GroupHolder | None:
    return next((holder for holder in state.holders if _is_of(holder, key, workflow_id)), None)


def _is_of(one: GroupHolder | GroupWaiting, key: str, workflow_id: str) -> bool:
    return (one.key, one.workflow_id) == (key, workflow_id)


def _who(asked: GroupAsk) -> dict[str, str]:
    return {"key": asked.key, "workflow_id": asked.workflow_id}
