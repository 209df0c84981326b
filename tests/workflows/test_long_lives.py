"""A job continues as new in the middle of everything and loses nothing; its records outlive an outage."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.worker import Replayer

from infra.settings import Settings
from infra.temporal.converter import DATA_CONVERTER
from tests.fleet import fresh
from tests.sink import Sink
from tests.workflows.asking import (
    Gate,
    Job,
    answers,
    delete,
    edit,
    impatient_fleet,
    pause,
    refusal,
    resume,
    seen,
    stored,
    trigger,
)
from workers.queues import WORKFLOWS, workflow_runner
from workflows.contracts import failures


async def run_id(job: Job) -> str:
    return str((await job.describe()).run_id)


# With no cache at all the SDK loses its place when an update meets a planning: it evicts the job
# between the two, and replays them in another order.
@pytest.mark.parametrize("cache", [1000, 1], ids=["cached", "evicted"])
async def test_a_job_that_continues_as_new_after_every_attempt_loses_nothing(
    temporal_client: Client,
    temporal_settings: Settings,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    cache: int,
) -> None:
    """Updates sent all the while are all answered, runs keep their attempts, requests are remembered."""
    settings = temporal_settings.model_copy(update={"max_cached_workflows": cache})
    async with impatient_fleet(temporal_client, settings, monkeypatch, RUNS_PER_HISTORY=1) as fleet:
        replayer = Replayer(
            workflows=WORKFLOWS, workflow_runner=workflow_runner(), data_converter=DATA_CONVERTER
        )
        answers(sink, "/retried", 500, 500, 500)
        retry = {"initial_interval": 0.2, "factor": 1, "jitter": 0}
        retried = await fleet.create(
            fresh("retried"), {"schedule": {"in": 0}, "retry": retry, "target": {"url": sink.url("/retried")}}
        )
        attempts = await sink.wait_for("/retried", 4)
        assert [one.execution_id.rpartition(":")[2] for one in attempts] == ["1", "2", "3", "4"]
        assert len({one.key for one in attempts}) == 1
        ended = await seen(retried, lambda found: found.status == "completed")
        assert (ended.stats.runs, ended.stats.succeeded) == (1, 1)
        busy_definition = {"schedule": {"every": 3600}, "target": {"url": sink.url("/busy")}}
        busy = await fleet.create(fresh("busy"), busy_definition)
        first_run = await run_id(busy)
        keys = []
        for number in range(4):
            keys.append((await trigger(busy, f"r{number}")).execution.key)
            changed = await edit(busy, {**busy_definition, "description": f"edit {number}"})
            assert changed.view.definition.description == f"edit {number}"
            await pause(busy)
            await resume(busy)
            await seen(busy, lambda found, n=number: found.stats.runs > n and not found.waiting)  # type: ignore[misc]
        assert (await trigger(busy, "r0")).repeated, "a request is remembered over many histories"
        assert await run_id(busy) != first_run
        found = await seen(busy, lambda found: found.stats.runs >= 4)
        assert found.revision == 5
        arrived = [one.key for one in sink.at("/busy")]
        assert [key for key in arrived if "manual" in key] == keys
        assert len(arrived) == len(set(arrived))
        for job in (retried, busy):
            await replayer.replay_workflow(await job.fetch_history())


async def test_a_run_in_flight_holds_its_history_until_it_has_ended(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop that waits for the worker's word is answered by the history that asked."""
    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch, RUNS_PER_HISTORY=1) as fleet:
        gate = Gate(sink, "/flying")
        job = await fleet.create(
            fresh("flying"), {"schedule": {"in": 0}, "target": {"url": sink.url("/flying")}}
        )
        [arrival] = await sink.wait_for("/flying", 1)
        before = await run_id(job)
        waiting = [asyncio.create_task(pause(job)) for _ in range(3)]
        for changed in await asyncio.gather(*waiting):
            assert [one.key for one in changed.in_flight] == [arrival.key]
        gate.open()
        found = await seen(job, lambda found: found.stats.runs == 1)
        assert found.status == "paused"
        async with asyncio.timeout(30):
            while await run_id(job) == before:
                await asyncio.sleep(0.05)
        assert (await resume(job)).view.stats.succeeded == 1


async def test_records_wait_out_an_outage_of_the_database_and_the_last_ones_too(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs go on, and a deleted job stays until its last row is stored; its id is free all the same."""
    soon = timedelta(milliseconds=300)
    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch, FLUSH_AGAIN=soon) as fleet:
        job = await fleet.create(
            fresh("away"), {"schedule": {"every": 86400}, "target": {"url": sink.url("/away")}}
        )
        fleet.recorder.away = True
        for number in range(5):
            await trigger(job, f"r{number}")
            await seen(job, lambda found, n=number: found.stats.succeeded > n)  # type: ignore[misc]
        await delete(job)
        assert (await refusal(trigger(job)))[0] == failures.JOB_DELETED
        assert fleet.recorder.executions(job.id.rpartition("/")[2]) == {}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await job.result()
        fleet.recorder.away = False
        async with asyncio.timeout(30):
            await job.result()
        rows = await stored(fleet, job, bool)
        assert [row.outcome for row in rows] == ["succeeded"] * 5
        ref = job.id.rpartition("/")[2]
        last = [one.job for one in fleet.recorder.records if one.ref == ref and one.job is not None][-1]
        assert last.status == "deleted"


async def test_what_the_database_missed_rides_along_when_it_is_back(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch) as fleet:
        job = await fleet.create(
            fresh("back"), {"schedule": {"every": 1}, "target": {"url": sink.url("/back")}}
        )
        fleet.recorder.away = True
        arrivals = await sink.wait_for("/back", 3)
        fleet.recorder.away = False
        keys = {one.key for one in arrivals}
        rows = await stored(
            fleet, job,
            lambda rows: keys <= {row.key for row in rows if row.outcome == "succeeded"},
        )  # fmt: skip
        assert {row.count for row in rows} == {1}


async def test_a_job_at_rest_writes_its_records_when_the_database_is_back(
    temporal_client: Client, temporal_settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hourly job and a completed one: no run comes by that could take the records along."""
    soon = timedelta(milliseconds=300)
    async with impatient_fleet(temporal_client, temporal_settings, monkeypatch, FLUSH_AGAIN=soon) as fleet:
        hourly, once = fresh("hourly"), fresh("once")
        target = {"target": {"url": sink.url("/rest")}}
        fleet.recorder.away = True
        job = await fleet.create(hourly, {"schedule": {"every": 3600}, **target})
        await trigger(job, "while-away")
        await fleet.create(once, {"schedule": {"in": 1}, **target})
        await sink.wait_for("/rest", 2)
        fleet.recorder.away = False
        async with asyncio.timeout(20):
            while not (fleet.recorder.executions(hourly) and fleet.recorder.executions(once)):
                await asyncio.sleep(0.05)
        for ref in (hourly, once):
            assert [row.outcome for row in fleet.recorder.executions(ref).values()] == ["succeeded"]
