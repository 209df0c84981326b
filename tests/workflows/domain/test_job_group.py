"""A job's side of its group: when a place is needed, kept, given back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.workflows.domain.states import at, definition, state
from workflows.contracts.attempt import Occurrence
from workflows.contracts.group import GroupGrant, GroupPlace
from workflows.contracts.job import JobState, RunState
from workflows.domain import job_group

ME = "job/acme/report"


def grouped(*, token: int | None = 3, run: bool = True, fires_at: float = 1, group: str | None = "g",
            forced: bool = False) -> JobState:  # fmt: skip
    """The run of minute 1, with its place in ``g``."""
    occurrence = Occurrence(key="acme/report:1", scheduled_time=at(1), fires_at=at(1))
    made = state(definition=definition(concurrency={"group": group}))
    if run:
        made.run = RunState(occurrence=occurrence, fires_at=at(fires_at), not_after=at(2), forced=forced)
    made.place = GroupPlace(group="g", key="acme/report:1", token=token, until=at(24 * 60 + 200))
    return made


@pytest.mark.parametrize(
    ("made", "left"),
    [
        pytest.param(grouped(), False, id="needed"),
        pytest.param(grouped(token=None), False, id="waited for"),
        pytest.param(grouped(run=False), True, id="its run has ended"),
        pytest.param(grouped(run=False, token=None), True, id="its run has gone while it waited"),
        pytest.param(grouped(fires_at=1.4), False, id="a retry within the hold limit"),
        pytest.param(grouped(fires_at=1.6), True, id="a retry beyond it"),
        pytest.param(grouped(group="other"), True, id="the definition names another group"),
        pytest.param(grouped(group=None), True, id="the definition names none"),
        pytest.param(grouped(forced=True), True, id="a forced run"),
    ],
)
def test_a_place_is_given_back_as_soon_as_it_is_not_needed(made: JobState, left: bool) -> None:
    token = None if made.place is None else made.place.token
    job_group.settle(made, ME, at(1))
    assert (made.place is None) == left
    told = [(one.leave.token, one.leave.workflow_id) for one in made.errands if one.kind == "leave_group"]
    assert told == [(token, ME)] * left
    job_group.settle(made, ME, at(1))
    assert len(made.errands) == left, "it is said once"


def grant(token: int, *, group: str = "g", key: str = "acme/report:1") -> GroupGrant:
    return GroupGrant(group=group, key=key, token=token, expires_at=at(9))


@pytest.mark.parametrize(
    ("made", "granted", "token", "left"),
    [
        pytest.param(grouped(token=None), grant(4), 4, [], id="waited for"),
        pytest.param(grouped(token=3), grant(4), 4, [], id="a newer token of the same place"),
        pytest.param(grouped(token=5), grant(4), 5, [], id="an older one"),
        pytest.param(grouped(token=3), grant(4, key="acme/report:2"), 3, [4], id="for another run"),
        pytest.param(grouped(token=3), grant(4, group="other"), 3, [4], id="of another group"),
        pytest.param(state(), grant(4), None, [4], id="nobody waits"),
    ],
)
def test_a_grant_is_taken_by_the_run_that_waits_or_given_back(
    made: JobState, granted: GroupGrant, token: int | None, left: list[int]
) -> None:
    job_group.granted(made, granted, ME)
    assert (made.place.token if made.place else None) == token
    assert [one.leave.token for one in made.errands if one.kind == "leave_group"] == left


def test_what_is_held_under_a_later_token_is_held() -> None:
    made = grouped(token=5)
    assert [job_group.holds(made, grant(token)) for token in (4, 5, 6)] == [True, True, False]
    assert not job_group.holds(made, grant(5, key="acme/report:2"))
    assert not job_group.holds(grouped(token=None), grant(5)), "it asked anew, and knows of no place"


def test_a_place_that_could_run_out_within_an_attempt_is_asked_for_anew() -> None:
    """An attempt is given its time, leases and a backstop; the group may give the place away after it."""
    made = grouped()
    run = made.run
    assert run is not None
    assert job_group.has_place(made, run, at(1))
    assert not job_group.has_place(made, run, at(1 + 150))
    run.started_at = at(1)
    assert job_group.has_place(made, run, at(1 + 150)), "max_duration counts from the first firing"
    asked = job_group.asks(made, run, "g", ME, at(3))
    assert (run.not_after, run.group_since) == (None, at(3)), "from here on it is active, and not late"
    assert not job_group.has_place(made, run, at(3)), "until it is granted again"
    job_group.granted(made, grant(9).model_copy(update={"expires_at": at(3) + asked.lasts}), ME)
    assert job_group.has_place(made, run, at(3) + timedelta(minutes=30))
