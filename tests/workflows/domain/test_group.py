"""The places of a group: who gets one, who keeps it, who loses it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from workflows.contracts.group import (
    GROUP_LIMIT_MAX,
    GROUP_QUEUE_MAX,
    GroupAsk,
    GroupHolder,
    GroupLeave,
    GroupState,
    GroupWaiting,
)
from workflows.domain import group

NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)
LASTS = 3600
Step = tuple[Literal["ask", "leave", "stop", "limit", "expire", "release"], str | int, int]
"""What is done, by or to whom, and a token, a limit or seconds; each step is a second after the last."""


def take(state: GroupState, step: Step, now: datetime) -> list[GroupHolder]:
    what, who, number = step
    key = f"acme/{who}:run"
    match what:
        case "ask":
            asked = GroupAsk(tenant="acme", group="g", key=key, workflow_id=f"job/acme/{who}", at=now,
                             lasts=timedelta(seconds=LASTS))  # fmt: skip
            return group.ask(state, asked, now)
        case "leave" | "stop":
            token = number if what == "leave" else None
            return group.leave(
                state, GroupLeave(group="g", key=key, workflow_id=f"job/acme/{who}", token=token), now
            )
        case "limit":
            return group.set_limit(state, number, now)
        case "expire":
            return group.expire(state, now + timedelta(seconds=number))
        case "release":
            return group.release(state, [number], now)


def names(holders: list[GroupHolder] | list[GroupWaiting]) -> str:
    return "".join(one.workflow_id.rpartition("/")[2] for one in holders)


A, B, C, D = (("ask", name, 0) for name in "abcd")


@pytest.mark.parametrize(
    ("steps", "granted", "holders", "waiting"),
    [
        pytest.param([A], "a", "a", "", id="the first gets a place at once"),
        pytest.param([A, B, C], "", "a", "bc", id="one place, the rest waits"),
        pytest.param([A, B, C, ("leave", "a", 1)], "b", "b", "c", id="first come, first served"),
        pytest.param([A, B, B, C, B, ("leave", "a", 1)], "b", "b", "c", id="asking again keeps the turn"),
        pytest.param([A, B, ("stop", "b", 0), ("leave", "a", 1)], "", "", "", id="one that stops waiting"),
        pytest.param([A, B, ("stop", "a", 0)], "", "a", "b", id="stopping to wait gives no place back"),
        pytest.param([A, B, ("leave", "b", 1)], "b", "b", "", id="a place belongs to its token"),
        pytest.param([A, B, ("leave", "a", 9)], "", "a", "b", id="a token that was never given"),
        pytest.param(
            [A, B, ("release", "", 1), C, ("leave", "a", 1)], "", "b", "c",
            id="d09: an old run gives back the lock of the new one",
        ),
        pytest.param([A, B, A], "a", "a", "b", id="a holder that asks keeps its place, under a new token"),
        pytest.param([A, B, A, ("leave", "a", 1)], "", "a", "b", id="and its old token is stale"),
        pytest.param([A, B, A, ("leave", "a", 2)], "b", "b", "", id="and the new one is not"),
        pytest.param([("limit", "", 2), A, B, C], "", "ab", "c", id="two places"),
        pytest.param([A, B, C, D, ("limit", "", 3)], "bc", "abc", "d", id="a higher limit"),
        pytest.param(
            [("limit", "", 2), A, B, C, ("limit", "", 1)], "", "ab", "c", id="a lower limit takes no place"
        ),
        pytest.param(
            [("limit", "", 2), A, B, C, ("limit", "", 1), ("leave", "a", 1)], "", "b", "c",
            id="and grants none before there is room",
        ),
        pytest.param(
            [("limit", "", 2), A, B, C, ("limit", "", 1), ("leave", "a", 1), ("leave", "b", 2)], "c", "c", "",
            id="but then it does",
        ),
        pytest.param([A, B, ("expire", "", LASTS - 3)], "", "a", "b", id="a grant that is needed still"),
        pytest.param([A, B, ("expire", "", LASTS)], "b", "b", "", id="a grant that ran out"),
    ],
)  # fmt: skip
def test_places(steps: list[Step], granted: str, holders: str, waiting: str) -> None:
    """``granted``: by the last step."""
    state = GroupState(tenant="acme", group="g")
    last: list[GroupHolder] = []
    for second, step in enumerate(steps):
        last = take(state, step, NOW + timedelta(seconds=second))
        assert len({holder.token for holder in state.holders}) == len(state.holders)
    assert (names(last), names(state.holders), names(state.waiting)) == (granted, holders, waiting)
    assert all(holder.token <= state.last_token for holder in state.holders)


def test_an_ask_takes_over_what_ran_out() -> None:
    """A group at rest has no timer: it looks at the clock when somebody asks."""
    state = GroupState(tenant="acme", group="g")
    take(state, A, NOW)
    assert names(take(state, B, NOW + timedelta(seconds=LASTS))) == "b"
    assert names(state.holders) == "b"


def test_the_queue_is_bounded() -> None:
    """One that finds no room is not kept, and may ask again."""
    state = GroupState(tenant="acme", group="g")
    for number in range(GROUP_QUEUE_MAX + 1):
        take(state, ("ask", number, 0), NOW)
    take(state, ("ask", "late", 0), NOW)
    assert len(state.waiting) == GROUP_QUEUE_MAX
    take(state, ("leave", 0, 1), NOW)
    take(state, ("ask", "late", 0), NOW)
    assert names(state.waiting[-1:]) == "late"


def test_the_fullest_group_can_be_passed_on() -> None:
    """A payload of 2 MiB holds it, whatever the names of tenant, jobs and runs."""
    ref = f"{'j' * 128}~99999"
    key, workflow_id = f"{'t' * 63}/{ref}:manual-{'r' * 64}", f"run/{'t' * 63}/{ref}/{'r' * 64}"
    waits = GroupWaiting(key=key, workflow_id=workflow_id, at=NOW + timedelta(microseconds=1),
                         lasts=timedelta(days=30, seconds=1))  # fmt: skip
    holds = GroupHolder(key=key, workflow_id=workflow_id, token=10**9, granted_at=waits.at,
                        expires_at=waits.at, told=True, asked_at=waits.at)  # fmt: skip
    state = GroupState(
        tenant="t" * 63, group="g" * 128, holders=[holds] * GROUP_LIMIT_MAX, waiting=[waits] * GROUP_QUEUE_MAX
    )
    assert len(state.model_dump_json().encode()) < 2 * 1024 * 1024


def questions(held_for: timedelta) -> list[datetime]:
    """When a holder that never says a word is asked."""
    state = GroupState(tenant="acme", group="g")
    for step in (A, B):
        take(state, step, NOW)
    group.told(state, [1])
    now, asked = NOW, []
    while now < NOW + held_for:
        if group.silent(state, now):
            group.questioned(state, [1], now)
            asked.append(now)
        now = group.look_again_at(state, now)
    return asked


def test_a_silent_holder_is_asked_soon_and_then_more_seldom() -> None:
    assert [(at - NOW).total_seconds() for at in questions(timedelta(minutes=4))] == [15, 30, 60, 120, 180]


def test_the_longest_run_is_asked_a_bounded_number_of_times() -> None:
    """A run of a workflow takes 2,000 updates, and its own changes must find room."""
    assert len(questions(timedelta(days=1))) < 300


def test_nobody_is_asked_as_long_as_nobody_waits_or_before_it_knows() -> None:
    state = GroupState(tenant="acme", group="g")
    take(state, A, NOW)
    later = NOW + timedelta(hours=1)
    group.told(state, [1])
    assert group.silent(state, later) == []
    take(state, B, NOW)
    assert names(group.silent(state, later)) == "a"
    take(state, A, NOW)
    assert (names(group.untold(state)), group.silent(state, later)) == ("a", [])
