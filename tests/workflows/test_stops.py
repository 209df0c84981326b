"""Stops answer truthfully: what was stopped is never sent, what is in flight is named."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest
from aiohttp import web
from temporalio import activity
from temporalio.client import Client

from activities.attempt import Attempts
from infra.settings import Settings
from tests.fleet import Fleet, MemoryRecorder, actor, fresh, view
from tests.sink import Arrival, Sink
from tests.workflows.asking import answers, at, edit, from_now, pause, stored
from workflows.contracts import names
from workflows.contracts.attempt import AttemptInput, AttemptReport
from workflows.contracts.job import CancelRequest, JobChanged, PauseRequest, ResumeRequest
from workflows.contracts.records import Record

JOBS = 20
TRIES = 10


async def slow(_: Arrival, before: int) -> web.Response:
    await asyncio.sleep(0.15)
    return web.Response(text="ok")


async def test_no_run_fires_after_an_answer_that_said_stopped(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    """200 pauses at random instants around the due time, over 20 jobs."""
    fleet = await Fleet(temporal_client, temporal_settings).start()
    rng = random.Random(7)
    stopped, in_flight, broken, waits = 0, 0, [], []

    async def try_job(number: int, offsets: list[float]) -> None:
        nonlocal stopped, in_flight
        path = f"/stop/{number}"
        sink.answers[path] = slow
        job = await fleet.create(fresh("stop"), {"schedule": {"every": 2}, "target": {"url": sink.url(path)}})
        for offset in offsets:
            seen = await view(job)
            while not seen.plan and seen.current is None:
                await asyncio.sleep(0.05)
                seen = await view(job)
            due = seen.current.fires_at if seen.current else seen.plan[0].fires_at
            await asyncio.sleep(max(0, due.timestamp() + offset - time.time()))
            asked = time.time()
            answer = await job.execute_update(
                names.UPDATE_PAUSE, PauseRequest(actor=actor()), result_type=JobChanged
            )
            answered = time.time()
            waits.append(answered - asked)
            if answer.in_flight:
                in_flight += 1
                assert answer.in_flight[0].state == "in_flight"
            else:
                stopped += 1
            await asyncio.sleep(0.6)
            late = [
                arrival for arrival in sink.at(path)
                if arrival.at > answered and arrival.key not in {one.key for one in answer.in_flight}
            ]  # fmt: skip
            broken.extend((offset, arrival.key, arrival.at - answered) for arrival in late)
            for one in answer.in_flight:
                assert one.key in {arrival.key for arrival in sink.at(path)}
            await job.execute_update(
                names.UPDATE_RESUME, ResumeRequest(actor=actor()), result_type=JobChanged
            )

    try:
        await asyncio.gather(
            *(try_job(n, [rng.uniform(-0.6, 0.2) for _ in range(TRIES)]) for n in range(JOBS))
        )
    finally:
        await fleet.stop()
    assert broken == []
    assert stopped + in_flight == JOBS * TRIES
    assert stopped > 20
    assert in_flight >= 1  # a quarter come behind their firing; fewer where runs fire late
    assert sorted(waits)[len(waits) // 2] < 1.0  # 0.03 s on an idle machine


class SlowRecorder(MemoryRecorder):
    """Takes its time over the end of an attempt, so that a stop can come before the report."""

    async def store(self, records: Sequence[Record], wait: timedelta) -> bool:
        await asyncio.sleep(1)
        return await super().store(records, wait)


async def test_a_cancel_that_meets_the_report_of_a_failure_ends_the_run(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    """The attempt has failed, the job does not know it yet: it is not tried again after the answer."""
    fleet = await Fleet(temporal_client, temporal_settings, recorder=SlowRecorder()).start()
    answers(sink, "/failing", 500)
    retry = {"initial_interval": 1, "jitter": 0}
    once = {"schedule": {"in": 0}, "target": {"url": sink.url("/failing")}, "retry": retry}
    try:
        job = await fleet.create(fresh("failing"), once)
        await sink.wait_for("/failing", 1)
        current = (await view(job)).current
        assert current is not None
        await asyncio.sleep(0.3)  # the answer has come, and the row is being written
        asked = CancelRequest(key=current.key, actor=actor())
        answer = await job.execute_update(names.UPDATE_CANCEL, asked, result_type=JobChanged)
        assert answer.in_flight == []
        await asyncio.sleep(2)
        assert len(sink.at("/failing")) == 1
        rows = await stored(fleet, job, lambda rows: rows[0].ended_at is not None)
        assert [(row.outcome, row.reason) for row in rows] == [("cancelled", "asked")]
    finally:
        await fleet.stop()


async def test_a_stop_between_two_holders_takes_back_nothing_that_may_have_been_sent(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first holder stands still after it has fired; the server cancels what waits for the next one
    without a word of it."""
    attempt, stood_still = Attempts.attempt, asyncio.Event()

    @activity.defn(name=names.ATTEMPT_ACTIVITY)
    async def standing_still(self, inp: AttemptInput) -> AttemptReport:  # type: ignore[no-untyped-def]
        if not stood_still.is_set():
            stood_still.set()
            await asyncio.sleep(8)
        return await attempt(self, inp)

    monkeypatch.setattr(Attempts, "attempt", standing_still)
    fleet = await Fleet(temporal_client, temporal_settings).start()
    once = {
        "schedule": {"at": at(from_now(0))},
        "target": {"url": sink.url("/between")},
        "heartbeat_timeout": 3,
    }
    try:
        job = await fleet.create(fresh("between"), once)
        await stood_still.wait()
        while True:
            [pending] = (await job.describe()).raw_description.pending_activities
            if pending.attempt == 2:
                break
            await asyncio.sleep(0.05)
        changed = await edit(job, {**once, "description": "edited"})
        assert len(changed.in_flight) == 1
        [arrival] = await sink.wait_for("/between", 1)
        assert arrival.delivery >= 2, "the first may have been sent"
    finally:
        await fleet.stop()


@pytest.mark.usefixtures("hasty_stops")
@pytest.mark.parametrize("how", ["edit", "pause"])
async def test_a_stop_that_meets_a_dead_holder_takes_back_nothing_that_may_have_been_sent(
    temporal_client: Client,
    temporal_settings: Settings,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """Its lease is not over yet, and it died between its write and its first word: nobody can tell, so the
    run is sent again, and is not called missed or skipped."""
    attempt, died = Attempts.attempt, asyncio.Event()

    @activity.defn(name=names.ATTEMPT_ACTIVITY)
    async def dead(self, inp: AttemptInput) -> AttemptReport:  # type: ignore[no-untyped-def]
        if died.is_set():
            return await attempt(self, inp)
        died.set()
        until = time.monotonic() + 8
        while (left := until - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        raise RuntimeError("nobody hears it")

    monkeypatch.setattr(Attempts, "attempt", dead)
    fleet = await Fleet(temporal_client, temporal_settings).start()
    path = f"/dead-{how}"
    once = {"schedule": {"at": at(from_now(0))}, "target": {"url": sink.url(path)}, "heartbeat_timeout": 3}
    try:
        job = await fleet.create(fresh("dead"), once)
        await died.wait()
        changed = await (edit(job, {**once, "description": "edited"}) if how == "edit" else pause(job))
        assert [one.state for one in changed.in_flight] == ["stopping"]
        [arrival] = await sink.wait_for(path, 1)
        assert (arrival.delivery, arrival.execution_id) == (2, f"{arrival.key}:1")
        rows = await stored(fleet, job, lambda rows: rows[0].ended_at is not None)
        assert [(row.key, row.outcome) for row in rows] == [(arrival.key, "succeeded")]
    finally:
        await fleet.stop()
