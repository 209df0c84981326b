"""What fails for good becomes a dead letter, and stays one until somebody settles it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from tests.fleet import Fleet, actor, fresh
from tests.sink import Sink
from tests.workflows.asking import answers, pause
from workflows.contracts import names
from workflows.contracts.dead_letter import (
    DeadLetterState,
    DiscardLetter,
    LetterRedriven,
    RedriveLetter,
)

UPDATES = True

Letter = WorkflowHandle[Any, Any]
ONE_TRY = {"max_attempts": 1}


def letter_of(fleet: Fleet, key: str) -> Letter:
    return fleet.client.get_workflow_handle(names.dead_letter_workflow_id(key), result_type=DeadLetterState)


async def letter(
    fleet: Fleet, key: str, enough: Callable[[DeadLetterState], bool] = lambda _: True, within: float = 20
) -> DeadLetterState:
    """The letter of this key as soon as there is one that looks so."""
    async with asyncio.timeout(within):
        while True:
            try:
                found: DeadLetterState = await letter_of(fleet, key).query(
                    names.QUERY_VIEW, result_type=DeadLetterState
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
            else:
                if enough(found):
                    return found
            await asyncio.sleep(0.05)


async def closed(fleet: Fleet, key: str, within: float = 20) -> DeadLetterState:
    async with asyncio.timeout(within):
        state: DeadLetterState = await letter_of(fleet, key).result()
    return state


async def redrive(fleet: Fleet, key: str, *, force: bool = False) -> LetterRedriven:
    request = RedriveLetter(force=force, actor=actor())
    done: LetterRedriven = await letter_of(fleet, key).execute_update(
        names.UPDATE_REDRIVE, request, result_type=LetterRedriven
    )
    return done


async def discard(fleet: Fleet, key: str) -> None:
    await letter_of(fleet, key).execute_update(names.UPDATE_DISCARD, DiscardLetter(actor=actor()))


async def poison(fleet: Fleet, sink: Sink, name: str, *statuses: int, **definition: Any) -> tuple[Any, str]:
    """A one-off job whose target answers so, and the key of its occurrence once it is a dead letter."""
    path = f"/{name}"
    answers(sink, path, *statuses)
    body = {
        "schedule": {"in": 1},
        "target": {"url": sink.url(path)},
        "retry": {"max_attempts": 2, "initial_interval": 0.1, "jitter": 0},
        **definition,
    }
    job = await fleet.create(fresh(name), body)
    [first, *_] = await sink.wait_for(path, 1)
    return job, first.key


async def test_what_fails_for_good_opens_a_letter_with_the_whole_story(fleet: Fleet, sink: Sink) -> None:
    _, key = await poison(fleet, sink, "poison", 500, 503)
    state = await letter(fleet, key)
    assert (state.status, state.letter.execution.reason) == ("open", "max_attempts")
    assert [(one.attempt, one.status_code) for one in state.letter.attempts] == [(1, 500), (2, 503)]
    assert state.letter.next_attempt == 3
    assert state.expires_at - state.letter.failed_at == timedelta(days=14)


async def test_a_discarded_letter_ends_and_its_job_forgets_it(fleet: Fleet, sink: Sink) -> None:
    job, key = await poison(fleet, sink, "discard", 500, retry=ONE_TRY)
    await letter(fleet, key)
    await discard(fleet, key)
    assert (await closed(fleet, key)).status == "discarded"
    with pytest.raises(RPCError):
        await discard(fleet, key)
    history = await job.fetch_history()
    signals = [
        event for event in history.events if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    assert [one.workflow_execution_signaled_event_attributes.signal_name for one in signals] == [
        names.SIGNAL_LETTER_CLOSED
    ]


async def test_a_letter_expires(fleet: Fleet, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.domain.dead_letter.KEPT_FOR", timedelta(seconds=2))
    _, key = await poison(fleet, sink, "expire", 500, retry=ONE_TRY)
    assert (await letter(fleet, key)).status == "open"
    assert (await closed(fleet, key)).status == "expired"


async def test_a_pause_that_ends_a_waiting_retry_leaves_a_letter(fleet: Fleet, sink: Sink) -> None:
    retry = {"max_attempts": 3, "initial_interval": 60, "jitter": 0}
    job, key = await poison(fleet, sink, "paused", 500, retry=retry)
    async with asyncio.timeout(10):
        while not fleet.recorder.executions(job.id.rpartition("/")[2]).get(key):
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    await pause(job)
    state = await letter(fleet, key)
    assert state.letter.execution.reason == "paused"
    assert state.letter.next_attempt == 2, "the second attempt was not sent"
