"""A batch of errands on a real server: each is run, and what is left is said in one failure."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities import errands as activity
from activities.errands import TRIES_OF_OLD, Errands
from tests.fleet import TENANT, fresh
from workflows.contracts import failures
from workflows.contracts.errands import Errand, ErrandsRefused, LeaveGroup, TellIncident
from workflows.contracts.group import GroupLeave
from workflows.contracts.incident import IncidentWord
from workflows.contracts.names import incident_workflow_id

TOO_LONG = "x" * 2000
"""No workflow may be called so."""


def incident(subject: str, *, opens: bool = True) -> Errand:
    at = datetime.now(UTC)
    return TellIncident(word=IncidentWord(tenant=TENANT, kind="missed", subject=subject, open=opens, at=at))


def leave() -> Errand:
    """To a group that is not there, which has no place to give back."""
    left = GroupLeave(group=fresh("none"), key="acme/x:1", workflow_id="job/acme/x")
    return LeaveGroup(tenant=TENANT, leave=left)


async def left_of(client: Client, batch: list[Errand], attempt: int = 1) -> tuple[ErrandsRefused, bool]:
    """What is left of a batch, and whether it is so for good."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, attempt=attempt)
    with pytest.raises(ApplicationError) as raised:
        await environment.run(Errands(client).run, batch)
    assert raised.value.type == failures.ERRANDS_REFUSED
    [left] = raised.value.details
    assert isinstance(left, ErrandsRefused)
    return left, raised.value.non_retryable


async def test_each_is_run_but_what_is_told_behind_a_refused_one(temporal_client: Client) -> None:
    told = fresh("told")
    batch = [incident(TOO_LONG), leave(), incident(TOO_LONG, opens=False), incident(told)]
    left, _ = await left_of(temporal_client, batch)
    [refused] = left.refused
    assert (refused.place, left.untried) == (0, [2])
    assert "exceeds maximum allowed length" in refused.reason
    handle = temporal_client.get_workflow_handle(incident_workflow_id(TENANT, "missed", told))
    await handle.terminate("it was told, and the test is over")


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b""), True),
        (RPCError("Timeout expired", RPCStatusCode.CANCELLED, b""), True),
        (TimeoutError(), True),
        (RPCError("too long", RPCStatusCode.INVALID_ARGUMENT, b""), False),
        (RuntimeError("a fault of ours"), False),
    ],
    ids=repr,
)
async def test_a_refusal_says_whether_the_server_was_away(
    temporal_client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, away: bool
) -> None:
    async def refuse(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(activity, "leave_group", refuse)
    left, _ = await left_of(temporal_client, [leave()])
    assert [one.away for one in left.refused] == [away]


async def test_a_batch_that_is_done_is_no_failure(temporal_client: Client) -> None:
    await ActivityEnvironment().run(Errands(temporal_client).run, [leave(), leave()])


@pytest.mark.parametrize(("attempt", "for_good"), [(1, False), (TRIES_OF_OLD, True)])
async def test_a_batch_begun_by_a_job_of_the_last_release_is_answered_in_the_end(
    temporal_client: Client, attempt: int, for_good: bool
) -> None:
    """Its policy tries it again without end: at first that loses nothing, for ever it would hold up all."""
    assert (await left_of(temporal_client, [incident(TOO_LONG)], attempt))[1] == for_good


async def test_what_a_batch_has_no_time_for_is_left(
    temporal_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is tried all the same, so each batch comes on."""
    monkeypatch.setattr(activity, "TRIED_FOR", timedelta(0))
    left, _ = await left_of(temporal_client, [leave(), leave(), leave()])
    assert left == ErrandsRefused(refused=[], untried=[1, 2])
