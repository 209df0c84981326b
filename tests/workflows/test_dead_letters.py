"""What fails for good becomes a dead letter, and stays one until somebody settles it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from infra.settings import Settings
from tests.fleet import TENANT, Fleet, actor, fresh
from tests.sink import Sink
from tests.workflows.asking import Gate, answers, delete, impatient_fleet, pause, refusal, seen
from workflows.contracts import failures, names
from workflows.contracts.dead_letter import (
    DeadLetterState,
    DiscardLetter,
    LetterRedriven,
    RedriveLetter,
)
from workflows.contracts.job import CancelRequest, JobChanged

UPDATES = True

Letter = WorkflowHandle[Any, Any]
ONE_TRY = {"max_attempts": 1}


def letter_of(fleet: Fleet, key: str) -> Letter:
    return fleet.client.get_workflow_handle(names.dead_letter_workflow_id(key), result_type=DeadLetterState)


async def letter(
    fleet: Fleet, key: str, enough: Callable[[DeadLetterState], bool] = lambda _: True, within: float = 60
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
                    fleet.jobs.append(letter_of(fleet, key))  # whose history is replayed at the end
                    return found
            await asyncio.sleep(0.05)


async def closed(fleet: Fleet, key: str, within: float = 60) -> DeadLetterState:
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


async def poison(
    fleet: Fleet, sink: Sink, name: str, *statuses: int, answering: bool = True, **definition: Any
) -> tuple[Any, str]:
    """A one-off job whose target answers so (unless the test sees to it), and the key of its occurrence."""
    path = f"/{name}"
    if answering:
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
    await seen(job, lambda found: found.current is not None and found.current.outcome == "retrying")
    await pause(job)
    state = await letter(fleet, key)
    assert state.letter.execution.reason == "paused"
    assert state.letter.next_attempt == 3, "the second attempt has its end, though it was not sent"


async def test_a_redrive_goes_on_behind_the_last_attempt_and_closes_the_letter(
    fleet: Fleet, sink: Sink
) -> None:
    """The same key, no execution id twice; a second redrive meanwhile is answered with the first."""
    gate = Gate(sink, "/again", 500, 500)
    gate.open()
    job, key = await poison(fleet, sink, "again", answering=False)
    await letter(fleet, key)
    gate.close()
    first = await redrive(fleet, key)
    second = await redrive(fleet, key)
    assert (first.repeated, second.repeated) == (False, True)
    assert first.execution.key == second.execution.key == key
    assert (await letter(fleet, key)).status == "redriving"
    kind, named = await refusal(discard(fleet, key))
    assert (kind, named) == (failures.LETTER_REDRIVING, key)
    gate.open()
    state = await closed(fleet, key)
    assert (state.status, state.redrives) == ("redriven", 1)
    assert [one.attempt for one in state.letter.attempts] == [1, 2, 3]
    arrivals = sink.at("/again")
    assert [one.execution_id for one in arrivals] == [f"{key}:{n}" for n in (1, 2, 3)]
    assert arrivals[-1].headers["carillon-trigger"] == "redrive"
    row = fleet.recorder.executions(job.id.rpartition("/")[2])[key]
    assert (row.outcome, row.trigger) == ("succeeded", "redrive")


async def test_a_redrive_that_fails_is_the_same_letter_with_more_attempts(fleet: Fleet, sink: Sink) -> None:
    _, key = await poison(fleet, sink, "worse", 500, 500, 503, 503, 504, 504)
    before = await letter(fleet, key)
    await redrive(fleet, key)
    after = await letter(fleet, key, lambda seen: seen.status == "open" and seen.redrives == 1)
    assert [(one.attempt, one.status_code) for one in after.letter.attempts] == [
        (1, 500), (2, 500), (3, 503), (4, 503),
    ]  # fmt: skip
    assert after.letter.next_attempt == 5
    assert after.letter.opened_at == before.letter.opened_at
    assert after.expires_at > before.expires_at
    assert after.letter.occurrence.trigger == "schedule"
    await redrive(fleet, key)
    await letter(fleet, key, lambda seen: seen.status == "open" and seen.redrives == 2)


async def test_a_cancelled_redrive_leaves_the_letter_open_and_uses_its_attempt_up(
    fleet: Fleet, sink: Sink
) -> None:
    gate = Gate(sink, "/halt", 500)
    gate.open()
    job, key = await poison(fleet, sink, "halt", answering=False, retry=ONE_TRY)
    await letter(fleet, key)
    gate.close()
    await redrive(fleet, key)
    await sink.wait_for("/halt", 2)
    request = CancelRequest(key=key, actor=actor())
    await job.execute_update(names.UPDATE_CANCEL, request, result_type=JobChanged)
    state = await letter(fleet, key, lambda seen: seen.status == "open")
    assert (state.letter.next_attempt, state.redrives) == (3, 1)
    gate.open()
    await redrive(fleet, key)
    assert (await closed(fleet, key)).status == "redriven"
    assert [one.execution_id for one in sink.at("/halt")] == [f"{key}:{n}" for n in (1, 2, 3)]


async def test_a_forced_redrive_runs_beside_the_run_that_is_active(fleet: Fleet, sink: Sink) -> None:
    """One that is not forced waits for its turn."""
    gate = Gate(sink, "/beside", 500)
    gate.open()
    job, key = await poison(
        fleet, sink, "beside", answering=False, retry=ONE_TRY, schedule={"every": 2}, catch_up={"grace": 0}
    )
    await letter(fleet, key)
    gate.close()
    await sink.wait_for("/beside", 2)
    await redrive(fleet, key, force=True)
    arrivals = await sink.wait_for("/beside", 3)
    assert arrivals[2].execution_id == f"{key}:2"
    gate.open()
    assert (await closed(fleet, key)).status == "redriven"
    found = await seen(job, lambda found: found.beside == [])
    assert found.stats.dead_lettered == 1


async def test_a_letter_of_a_deleted_job_is_redriven_as_the_deleted_one(fleet: Fleet, sink: Sink) -> None:
    """Twice: the first redrive fails as well, and the letter goes on without its job."""
    job, key = await poison(fleet, sink, "gone", 500, 500, 500, 503)
    await letter(fleet, key)
    await delete(job)
    await job.result()
    await redrive(fleet, key)
    state = await letter(fleet, key, lambda seen: seen.status == "open" and seen.redrives == 1)
    assert [one.attempt for one in state.letter.attempts] == [1, 2, 3, 4]
    await redrive(fleet, key)
    assert (await closed(fleet, key)).status == "redriven"
    assert [one.execution_id for one in sink.at("/gone")] == [f"{key}:{n}" for n in range(1, 6)]


async def test_a_redrive_that_nobody_knows_of_any_more_opens_the_letter_again(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was terminated. What attempts it may have made are not made again."""
    gate = Gate(sink, "/lost", 500, 500)
    gate.open()
    look = timedelta(milliseconds=300)
    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch, LOOK_FIRST=look) as fleet:
        job, key = await poison(fleet, sink, "lost", answering=False)
        await letter(fleet, key)
        await delete(job)
        await job.result()
        gate.close()
        await redrive(fleet, key)
        await sink.wait_for("/lost", 3)
        await asyncio.sleep(1)
        assert (await letter(fleet, key)).status == "redriving", "it is asked for and found"
        _, ref, suffix = names.parse_key(key)
        run = fleet.client.get_workflow_handle(names.run_workflow_id(TENANT, ref, f"{suffix}/3"))
        await run.terminate("an operator did it")
        state = await letter(fleet, key, lambda seen: seen.status == "open")
        assert state.letter.next_attempt == 5
        gate.open()
        await redrive(fleet, key)
        assert (await closed(fleet, key)).status == "redriven"


async def test_of_too_many_letters_of_a_job_the_oldest_is_closed(
    fleet: Fleet, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.domain.letters.OPEN_A_JOB", 2)
    _, key = await poison(fleet, sink, "many", *[500] * 3, retry=ONE_TRY, schedule={"every": 1})
    await letter(fleet, key)
    state = await closed(fleet, key)
    assert state.status == "evicted"
    second, third = (arrival.key for arrival in (await sink.wait_for("/many", 3))[1:3])
    assert [(await letter(fleet, one)).status for one in (second, third)] == ["open", "open"]
