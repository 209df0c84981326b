"""A worker that stops gives back what it holds and what it has in flight; another one takes it on."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import Client

from infra.settings import Settings
from infra.temporal.client import connect
from tests.fleet import Fleet, fresh
from tests.sink import Sink
from tests.workflows.asking import Gate, at, from_now, held, pause, stored, told

JOBS = 5
ON_TIME = 8.0
"""What is returned waits for its workflow task on the queue of a worker that is gone, 2 s at most; a lease
and a pause between attempts last longer than this."""


async def test_held_runs_are_fired_on_time_by_the_worker_that_stays(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    goes = await Fleet(temporal_client, temporal_settings).start()
    stays = Fleet(await connect(temporal_settings), temporal_settings)
    due = from_now(5)
    try:
        jobs = [
            await stays.create(
                fresh("given"), {"schedule": {"at": at(due)}, "target": {"url": sink.url("/given")}}
            )
            for _ in range(JOBS)
        ]
        await asyncio.gather(*(held(job) for job in jobs))
        await stays.start()
        await goes.stop()
        arrivals = await sink.wait_for("/given", JOBS)
        assert all(0 <= one.at - due.timestamp() < ON_TIME for one in arrivals)
        assert {one.delivery for one in arrivals} == {1}
        assert len({one.key for one in arrivals}) == JOBS
    finally:
        await stays.stop()


async def test_a_run_in_flight_at_the_end_of_the_grace_is_sent_again_and_is_no_reap(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    """Of a job that allows no reap at all; a pause that meets it is told the truth."""
    gate = Gate(sink, "/mid")
    goes = await Fleet(temporal_client, temporal_settings).start()
    stays = Fleet(await connect(temporal_settings), temporal_settings)
    try:
        job = await stays.create(
            fresh("mid"), {"schedule": {"in": 0}, "max_reaps": 0, "target": {"url": sink.url("/mid")}}
        )
        [first] = await sink.wait_for("/mid", 1)
        await stays.start()
        await goes.stop()
        _, again = await sink.wait_for("/mid", 2)
        assert (again.execution_id, again.delivery) == (first.execution_id, 2)
        gate.open()
        rows = await stored(stays, job, lambda rows: any(row.ended_at for row in rows))
        assert told(rows) == [("succeeded", None, 1)]
    finally:
        await stays.stop()


@pytest.mark.parametrize("grace", [0], ids=["no grace"])
async def test_a_pause_that_meets_the_end_of_the_worker_names_the_run_that_goes_on(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, grace: int
) -> None:
    gate = Gate(sink, "/met")
    goes = await Fleet(temporal_client, temporal_settings).start()
    stays = Fleet(await connect(temporal_settings), temporal_settings)
    try:
        job = await stays.create(fresh("met"), {"schedule": {"in": 0}, "target": {"url": sink.url("/met")}})
        [first] = await sink.wait_for("/met", 1)
        await stays.start()
        _, changed = await asyncio.gather(goes.stop(), pause(job))
        gate.open()
        await stored(stays, job, lambda rows: any(row.ended_at for row in rows))
        later = [one for one in sink.at("/met") if one is not first]
        assert {one.key for one in later} <= {one.key for one in changed.in_flight}
    finally:
        await stays.stop()
