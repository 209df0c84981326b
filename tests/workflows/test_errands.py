"""What a job tells other workflows reaches them whatever becomes of the rest that it has to tell."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import _workflow_instance

from activities import errands as activity
from activities.incidents import tell
from tests.fleet import TENANT, Fleet, fresh
from tests.sink import Sink
from tests.workflows.asking import answers, delete
from workflows.contracts import names
from workflows.contracts.errands import Errand, ErrandsRefused, TellIncident
from workflows.contracts.incident import IncidentWord

TOO_LONG = "x" * 2000
"""No workflow of Temporal may be called so: it is refused, at each try."""


def incident(subject: str) -> Errand:
    word = IncidentWord(
        tenant=TENANT, kind="missed", subject=subject, job="x", open=True, at=datetime.now(UTC)
    )
    return TellIncident(word=word)


def far_off(sink: Sink) -> dict[str, Any]:
    return {"schedule": {"in": 3600}, "target": {"url": sink.url("/far-off")}}


async def details(job: WorkflowHandle[Any, Any]) -> str:
    metadata: WorkflowMetadata = await job.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return str(metadata.current_details)


async def saying(job: WorkflowHandle[Any, Any], words: str, within: float = 60) -> str:
    async with asyncio.timeout(within):
        while words not in (found := await details(job)):
            await asyncio.sleep(0.1)
    return found


async def told(fleet: Fleet, subject: str, within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not fleet.incidents.of(subject):
            await asyncio.sleep(0.05)


async def test_an_errand_that_is_refused_holds_up_none_behind_it(fleet: Fleet, sink: Sink) -> None:
    """Neither in its batch, nor what comes to be told later: the dead letter of the job's run."""
    name, beside = fresh("refused"), fresh("beside")
    path = f"/{name}"
    answers(sink, path, 500)
    job = await fleet.create(
        name,
        {"schedule": {"in": 2}, "target": {"url": sink.url(path)}, "retry": {"max_attempts": 1}},
        errands=[incident(TOO_LONG), incident(beside)],
    )
    await told(fleet, beside)
    [arrival] = await sink.wait_for(path, 1)
    letter = fleet.client.get_workflow_handle(names.dead_letter_workflow_id(arrival.key))
    async with asyncio.timeout(20):
        while not await exists(letter):
            await asyncio.sleep(0.05)
    page = await saying(job, "refused 3 times")
    assert "tell_incident missed of xxx" in page
    assert "exceeds maximum allowed length" in page
    fleet.jobs.append(letter)


async def exists(handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        return (await handle.describe()).status == WorkflowExecutionStatus.RUNNING
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False


async def test_a_job_that_was_deleted_ends_when_all_is_told(
    fleet: Fleet, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was refused is told at a later try, once."""
    subject, tries = fresh("late"), 0

    async def refuse_twice(client: Client, word: IncidentWord) -> None:
        nonlocal tries
        tries += word.subject == subject
        if word.subject == subject and tries < 3:
            raise ValueError("not today")
        await tell(client, word)

    monkeypatch.setattr(activity, "tell", refuse_twice)
    job = await fleet.create(fresh("deleted"), far_off(sink), errands=[incident(subject)])
    assert "ValueError: not today" in await saying(job, "refused 1 times")
    await delete(job)
    await asyncio.wait_for(job.result(), 20)
    await told(fleet, subject)
    assert (tries, [one.count for one in fleet.incidents.of(subject)]) == (3, [1])


async def test_a_batch_that_fails_as_a_whole_is_run_one_by_one(
    fleet: Fleet, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that holds an errand no worker can read."""
    left_of = activity.Errands._left_of

    async def unreadable(self: activity.Errands, batch: list[Errand]) -> ErrandsRefused:
        if len(batch) > 1:
            raise ApplicationError("nobody can read this", non_retryable=True)
        return await left_of(self, batch)

    monkeypatch.setattr(activity.Errands, "_left_of", unreadable)
    subjects = [fresh("one"), TOO_LONG, fresh("two")]
    job = await fleet.create(fresh("apart"), far_off(sink), errands=[incident(one) for one in subjects])
    await told(fleet, subjects[0])
    await told(fleet, subjects[2])
    await saying(job, "refused 2 times")


async def test_what_is_refused_for_long_goes_from_one_history_to_the_next(
    fleet: Fleet, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may rest for weeks, and the tries go on: its history must not grow to the server's limit."""

    def is_long(self: Any) -> bool:
        return int(self._current_history_length) > 25

    monkeypatch.setattr(
        _workflow_instance._WorkflowInstanceImpl, "workflow_is_continue_as_new_suggested", is_long
    )
    job = await fleet.create(fresh("resting"), far_off(sink), errands=[incident(TOO_LONG)])
    first = (await job.describe()).run_id
    async with asyncio.timeout(60):
        while (await job.describe()).run_id == first:
            await asyncio.sleep(0.2)
    assert "tell_incident missed of xxx" in await saying(job, "refused")
    events = (await fleet.client.get_workflow_handle(job.id, run_id=first).fetch_history()).events
    assert events[-1].HasField("workflow_execution_continued_as_new_event_attributes")
