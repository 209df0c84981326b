"""Concurrency groups across jobs: who runs when, and what becomes of places whose holders vanish.

Every history is replayed at the end, those of the groups too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from aiohttp import web
from temporalio.client import Client, WorkflowExecutionStatus

from infra.settings import Settings
from tests.fleet import TENANT, Fleet, actor, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import (
    Gate,
    Job,
    at,
    delete,
    ended,
    from_now,
    impatient_fleet,
    pause,
    seen,
    stored,
    told,
)
from tests.workflows.grouped import Group, is_queued, order
from workflows.contracts import names
from workflows.contracts.attempt import Occurrence
from workflows.contracts.job import JobChanged, RunState, TriggerRequest
from workflows.domain import group as group_rules

UPDATES = True


@pytest.fixture(autouse=True)
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders are asked after a second. (``workflows.domain`` is the same inside the sandbox.)"""
    monkeypatch.setattr(group_rules, "FIRST_QUESTION", timedelta(seconds=1))


async def test_jobs_of_a_group_run_one_after_the_other_in_the_order_of_their_asking(
    fleet: Fleet, sink: Sink
) -> None:
    """The place is free again when all have run, and a run that waited does not count as late."""
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    jobs = [await group.waiter(f"/{name}", catch_up={"grace": 1}) for name in "abc"]
    assert order(sink) == "holder"
    gate.open()
    await sink.wait_for("/c", 1)
    assert order(sink) == "holder a b c"
    for job in jobs:
        assert told(await stored(fleet, job, ended)) == [("succeeded", None, 1)]
    await group.is_empty()


async def test_the_limit_is_kept_and_lowering_it_takes_no_place_away(fleet: Fleet, sink: Sink) -> None:
    group = await Group.made(fleet, sink, limit=2)
    _, first = await group.holder("/first")
    _, second = await group.holder("/second")
    await group.waiter("/third")
    await group.waiter("/fourth")
    assert (await group.limited(1)).held == 2
    first.open()
    await group.until(lambda found: found.held == 1)
    assert order(sink) == "first second", "one place, and it is taken"
    second.open()
    await sink.wait_for("/fourth", 1)
    assert order(sink) == "first second third fourth"
    await group.is_empty()


async def test_a_group_begins_with_the_first_job_that_names_it(fleet: Fleet, sink: Sink) -> None:
    group = Group(fleet, sink, fresh("group"))
    fleet.jobs.append(group.handle)
    _, gate = await group.holder()
    found = await group.until(lambda found: found.held == 1)
    assert found.limit == 1
    gate.open()
    await group.is_empty()


async def test_the_place_of_a_holder_that_was_terminated_is_released(fleet: Fleet, sink: Sink) -> None:
    """One that is alive and silent keeps its own; one that vanished while it waited is passed over."""
    group = await Group.made(fleet, sink)
    holder, _ = await group.holder()
    gone = await group.waiter("/gone")
    await group.waiter("/next")
    await group.until(lambda found: found.holders[0].asked_at is not None)
    await asyncio.sleep(0.5)  # the answer has had its time
    assert order(sink) == "holder"
    await gone.terminate("an operator")
    await holder.terminate("an operator")
    await sink.wait_for("/next", 1)
    assert order(sink) == "holder next"


async def test_a_place_is_kept_while_no_worker_is_there(fleet: Fleet, sink: Sink) -> None:
    """Neither the run that has it nor the one that waits loses its turn."""
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    await group.waiter("/waiter")
    await fleet.restarted()  # in mid-run: the attempt goes back and is delivered again
    await sink.wait_for("/holder", 2)
    assert order(sink) == "holder holder"
    gate.open()
    await sink.wait_for("/waiter", 1)
    assert len({arrival.execution_id for arrival in sink.at("/holder")}) == 1
    await group.is_empty()


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        pytest.param(1.0, "retried retried other", id="within the hold limit the place is kept"),
        pytest.param(3.5, "retried other retried", id="beyond it the place is given back"),
    ],
)
async def test_the_wait_for_a_retry(fleet: Fleet, sink: Sink, interval: float, expected: str) -> None:
    fleet = await fleet.restarted(look_ahead=timedelta(seconds=2))
    group = await Group.made(fleet, sink)
    failing = asyncio.Event()

    async def fail_once(_: Arrival, before: int) -> web.Response:
        await failing.wait()
        return web.Response(status=200 if before else 503)

    sink.answers["/retried"] = fail_once
    await group.job("/retried", retry={"initial_interval": interval, "jitter": 0})
    await sink.wait_for("/retried", 1)
    await group.waiter("/other")
    failing.set()
    await sink.wait_for("/other", 1)
    await sink.wait_for("/retried", 2)
    assert order(sink) == expected
    await group.is_empty()


async def test_a_forced_run_goes_past_its_group(fleet: Fleet, sink: Sink) -> None:
    """Whether its job runs nothing else, or waits for the group itself."""
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    idle = await fleet.create(fresh("idle"), {**group.definition("/idle"), "schedule": {"every": "PT1H"}})
    waiter = await group.waiter("/waiter")
    for job in (idle, waiter):
        forced = TriggerRequest(request="now", force=True, actor=actor())
        await job.execute_update(names.UPDATE_TRIGGER, forced)
    await sink.wait_for("/idle", 1)
    await sink.wait_for("/waiter", 1)
    assert (await group.until(lambda found: True)).queued == 1
    gate.open()
    await sink.wait_for("/waiter", 2)


async def test_what_falls_due_while_a_run_waits_for_its_group_is_skipped(fleet: Fleet, sink: Sink) -> None:
    """Under ``forbid`` it is active from its instant on."""
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    every = await fleet.create(fresh("every"), group.definition("/every", schedule={"every": "PT1S"}))
    await seen(every, is_queued)
    await asyncio.sleep(2.5)
    gate.open()
    await sink.wait_for("/every", 1)
    rows = await stored(fleet, every, lambda rows: any(row.outcome == "skipped" for row in rows))
    skipped = next(row for row in rows if row.outcome == "skipped")
    assert (skipped.reason, skipped.count >= 2) == ("overlap", True)
    assert sink.at("/every")[0].key == rows[0].key
    await delete(every, cancel=True)


async def test_a_run_that_is_late_before_it_could_ask_is_missed(fleet: Fleet, sink: Sink) -> None:
    """No worker was there when it fell due; its group hears nothing of it."""
    group = await Group.made(fleet, sink)
    soon = from_now(2)
    definition = group.definition("/late", catch_up={"policy": "none", "grace": 0})
    late = await fleet.create(fresh("late"), {**definition, "schedule": {"at": at(soon)}})
    await seen(late, lambda found: found.current is not None)
    await fleet.restarted(after=(soon - from_now(0)).total_seconds() + 1.5)
    assert [row.outcome for row in await stored(fleet, late, bool)] == ["missed"]
    assert (await group.until(lambda found: True)).held == 0


async def test_a_run_that_was_sent_before_its_job_joined_a_group_is_sent_again_however_late(
    fleet: Fleet, sink: Sink
) -> None:
    """Its lease was lost behind the edit, and by then it is past its grace: it may have arrived."""
    group = await Group.made(fleet, sink)
    sent, key = await _sent(fleet, group)
    [arrival] = await sink.wait_for("/sent", 1)
    assert (arrival.key, arrival.headers["carillon-delivery"]) == (key, "2")
    assert [(row.key, row.outcome) for row in await stored(fleet, sent, ended)] == [(key, "succeeded")]
    await group.is_empty()


@pytest.mark.parametrize("change", [pause, delete])
async def test_a_stop_names_a_run_that_was_sent_and_waits_for_its_group(
    fleet: Fleet, sink: Sink, change: Callable[[Job], Awaitable[JobChanged]]
) -> None:
    """It keeps its promise to go on, so its next delivery comes after the answer."""
    group = await Group.made(fleet, sink)
    _, gate = await group.holder()
    sent, key = await _sent(fleet, group)
    await seen(sent, is_queued)
    assert [(one.key, one.state) for one in (await change(sent)).in_flight] == [(key, "in_flight")]
    gate.open()
    [arrival] = await sink.wait_for("/sent", 1)
    assert arrival.key == key


async def _sent(fleet: Fleet, group: Group) -> tuple[Job, str]:
    """A job that joined the group while its run, late by now, was with a worker that died; and its key."""
    job, at_ = fresh("sent"), from_now(-60).replace(microsecond=0)
    key = names.scheduled_key(TENANT, job, at_)
    run = RunState(
        occurrence=Occurrence(key=key, scheduled_time=at_, fires_at=at_),
        fires_at=at_,
        not_after=at_ + timedelta(seconds=10),
        deliveries=1,
        reaps=1,
        started_at=at_,
        run_number=1,
    )
    definition = group.definition("/sent", catch_up={"policy": "none", "grace": 10})
    sent = await fleet.create(
        job, {**definition, "schedule": {"at": at(at_)}}, cursor=at_, run=run, served=[at_], scheduled_runs=1
    )
    return sent, key


async def test_a_grant_that_finds_no_run_is_given_back(fleet: Fleet, sink: Sink) -> None:
    """The group's word and the run's may cross."""
    group = await Group.made(fleet, sink)
    job = await fleet.create(fresh("idle"), {**group.definition("/idle"), "schedule": {"every": "PT1H"}})
    await seen(job, lambda found: bool(found.plan))
    ask = {"tenant": TENANT, "group": group.name, "key": "acme/idle:other", "workflow_id": job.id}
    await group.handle.signal(names.SIGNAL_ASK, {**ask, "at": at(from_now(0)), "lasts": 60})
    await job.describe()
    await group.is_empty()
    assert (await job.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_runs_beside_their_job_take_places_of_their_own(fleet: Fleet, sink: Sink) -> None:
    """Under ``allow`` two runs of one job can have two places, and a third one waits."""
    group = await Group.made(fleet, sink, limit=2)
    gate = Gate(sink, "/beside")
    definition = group.definition("/beside", schedule={"every": "PT1S"})
    definition["concurrency"] |= {"policy": "allow", "limit": 3}
    job = await fleet.create(fresh("beside"), definition)
    await sink.wait_for("/beside", 2)
    found = await group.until(lambda found: found.queued == 1)
    assert len({one.workflow_id for one in (*found.holders, *found.waiting)}) == 3
    assert len(sink.at("/beside")) == 2
    await pause(job)
    gate.open()
    await sink.wait_for("/beside", 2)
    await group.is_empty()


async def test_a_group_that_continues_as_new_loses_neither_place_nor_turn(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with impatient_fleet(
        temporal_client, temporal_settings, monkeypatch, SIGNALS_PER_HISTORY=2
    ) as fleet:
        group = await Group.made(fleet, sink)
        first = (await group.handle.describe()).run_id
        _, gate = await group.holder()
        for name in "abcd":
            await group.waiter(f"/{name}")
        assert (await group.handle.describe()).run_id != first
        gate.open()
        await sink.wait_for("/d", 1)
        assert order(sink) == "holder a b c d"
        await group.is_empty()


async def test_a_group_that_was_terminated_goes_on_as_it_was(fleet: Fleet, sink: Sink) -> None:
    """With its limit, the places it had granted, and its queue; the next run that asks revives it."""
    group = await Group.made(fleet, sink)
    await group.limited(2)
    _, first = await group.holder("/first")
    _, second = await group.holder("/second")
    await group.waiter("/third")
    before = await group.until(lambda found: True)
    await group.handle.terminate("an operator")
    fourth = await group.job("/fourth")
    found = await group.until(lambda found: found.queued == 2)
    fleet.jobs.append(group.handle)
    assert (found.limit, found.limit_at) == (2, before.limit_at)
    assert [one.token for one in found.holders] == [1, 2]
    await seen(fourth, is_queued)
    assert order(sink) == "first second"
    first.open()
    await sink.wait_for("/third", 1)
    second.open()
    await sink.wait_for("/fourth", 1)
    await group.is_empty()


async def test_a_group_that_was_terminated_before_its_first_task_keeps_its_limit(
    fleet: Fleet, sink: Sink
) -> None:
    """No worker can tell what it was: it is what it was begun with."""
    await fleet.stop_workers()
    group = await Group.made(fleet, sink, limit=2)
    await group.handle.terminate("an operator")
    await fleet.start()
    await group.holder("/first")
    await group.holder("/second")
    await group.waiter("/third")
    fleet.jobs.append(group.handle)
