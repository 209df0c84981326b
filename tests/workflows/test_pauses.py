"""Paused time is counted and not run; a pause ends what only waits."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from aiohttp import web
from temporalio.client import Client

from infra.settings import Settings
from tests.fleet import TENANT, Fleet, fresh, view
from tests.sink import Arrival, Sink
from tests.workflows.asking import (
    Gate,
    Job,
    answers,
    at,
    delete,
    from_now,
    pause,
    resume,
    seen,
    stored,
    told,
    trigger,
)
from workflows.contracts import names
from workflows.contracts.records import ExecutionRow, Pause, Record

UPDATES = True


async def test_a_retry_that_waits_ends_as_a_dead_letter(fleet: Fleet, sink: Sink) -> None:
    answers(sink, "/waits", 500)
    job = await fleet.create(
        fresh("waits"),
        {
            "schedule": {"in": 0},
            "retry": {"initial_interval": 60},
            "target": {"url": sink.url("/waits")},
        },
    )
    await seen(job, lambda found: found.current is not None and found.current.outcome == "retrying")
    changed = await pause(job, reason="look")
    assert (changed.in_flight, changed.view.current) == ([], None)
    [row] = await stored(fleet, job, lambda rows: any(row.ended_at for row in rows))
    assert told([row]) == [("dead_lettered", "paused", 1)]


async def test_a_retry_that_is_held_ends_as_a_dead_letter_and_is_not_sent(fleet: Fleet, sink: Sink) -> None:
    answers(sink, "/held-retry", 500)
    job = await fleet.create(
        fresh("held-retry"),
        {
            "schedule": {"in": 0},
            "retry": {"initial_interval": 2, "jitter": 0},
            "target": {"url": sink.url("/held-retry")},
        },
    )
    await seen(job, lambda found: found.current is not None and found.current.outcome == "retrying")
    changed = await pause(job)
    assert changed.in_flight == []
    [row] = await stored(fleet, job, lambda rows: any(row.ended_at for row in rows))
    assert told([row]) == [("dead_lettered", "paused", 1)]
    await resume(job)
    await seen(job, lambda found: found.status == "completed")
    assert len(sink.at("/held-retry")) == 1


async def test_a_retry_that_no_worker_has_a_place_for_is_not_sent_after_the_answer(
    temporal_client: Client, temporal_settings: Settings, sink: Sink
) -> None:
    """The server drops such an attempt without a word of whether it was ever held."""
    one_place = temporal_settings.model_copy(update={"max_concurrent_runs": 1})
    fleet = await Fleet(temporal_client, one_place).start()
    try:
        first, other = Gate(sink, "/crowded", 500), Gate(sink, "/crowding")
        crowded = await fleet.create(
            fresh("crowded"),
            {
                "schedule": {"in": 0},
                "retry": {"initial_interval": 0},
                "target": {"url": sink.url("/crowded")},
            },
        )
        crowding = await fleet.create(
            fresh("crowding"), {"schedule": {"every": 3600}, "target": {"url": sink.url("/crowding")}}
        )
        await sink.wait_for("/crowded", 1)
        await trigger(crowding)
        await seen(crowding, lambda found: found.current is not None)
        first.open()
        await sink.wait_for("/crowding", 1)
        await seen(crowded, lambda found: found.current is not None and found.current.outcome == "retrying")
        assert (await pause(crowded)).in_flight == []
        other.open()
        [row] = await stored(fleet, crowded, lambda rows: any(row.ended_at for row in rows))
        assert told([row]) == [("dead_lettered", "paused", 1)]
        await seen(crowding, lambda found: found.stats.succeeded == 1)
        assert len(sink.at("/crowded")) == 1
    finally:
        await fleet.stop()


async def test_a_resume_counts_the_paused_time_in_one_row(fleet: Fleet, sink: Sink) -> None:
    since = from_now(-3600).replace(microsecond=0)
    job = await fleet.create(
        fresh("hour"),
        {"schedule": {"every": 60, "anchor": at(since)}, "target": {"url": sink.url("/hour")}},
        cursor=since,
        pause=Pause(since=since),
    )
    changed = await resume(job)
    assert changed.view.status == "active"
    found = await seen(job, lambda found: bool(found.plan))
    assert found.plan[0].scheduled_time == since + timedelta(minutes=61)
    assert found.stats.skipped == 60
    await pause(job)  # a change flushes what waits
    rows = await stored(fleet, job, bool)
    assert told(rows) == [("skipped", "paused", 60)]
    assert (rows[0].scheduled_time, rows[0].last_scheduled_time) == (
        since + timedelta(minutes=1),
        since + timedelta(minutes=60),
    )
    assert sink.at("/hour") == []


async def test_a_pause_ends_by_itself(fleet: Fleet, sink: Sink) -> None:
    until = from_now(1.5)
    job = await fleet.create(
        fresh("until"), {"schedule": {"every": 1}, "target": {"url": sink.url("/until")}},
        pause=Pause(since=from_now(0), until=until),
    )  # fmt: skip
    [arrival] = await sink.wait_for("/until", 1)
    assert arrival.at >= until.timestamp()
    assert (await seen(job, lambda found: found.stats.succeeded > 0)).status == "active"


async def test_the_index_learns_of_a_change_and_of_the_next_run_after_it(fleet: Fleet, sink: Sink) -> None:
    """The plan that a resume drops is made again: without its row no list would show the next run."""
    job = await fleet.create(fresh("row"), {"schedule": {"every": 3600}, "target": {"url": sink.url("/row")}})
    await pause(job)
    await resume(job)
    found = await seen(job, lambda found: bool(found.plan))
    ref = job.id.rpartition("/")[2]

    def newest() -> Record | None:
        rows = [one for one in fleet.recorder.records if one.ref == ref and one.job is not None]
        return max(rows, key=lambda one: one.job.change if one.job else 0, default=None)

    def shown(row: Record | None) -> bool:
        return row is not None and row.job is not None and row.job.next_fires_at == found.plan[0].fires_at

    await stored(fleet, job, lambda _: shown(newest()))


async def test_a_pause_right_after_a_resume_leaves_the_first_one_counted(fleet: Fleet, sink: Sink) -> None:
    """The row of the first pause is written though nothing is planned any more."""
    job = await fleet.create(
        fresh("twice"), {"schedule": {"every": 1}, "target": {"url": sink.url("/twice")}}
    )
    await sink.wait_for("/twice", 1)
    begun = time.monotonic()
    await pause(job)
    await asyncio.sleep(2.5)
    await asyncio.gather(resume(job), pause(job, reason="again"))
    paused_s = time.monotonic() - begun
    rows = await stored(fleet, job, lambda rows: any(row.outcome == "skipped" for row in rows))
    [row] = [row for row in rows if row.outcome == "skipped"]
    assert (row.reason, 1 <= row.count <= paused_s + 1) == ("paused", True)
    assert (await view(job)).stats.missed == 0


# -- runs beside the loop --------------------------------------------------------------------------


async def beside_twice(fleet: Fleet, path: str, interval: float) -> Job:
    """A job whose two runs are beside its loop, as those are that may last for long under ``allow``."""
    return await fleet.create(
        fresh("aside"),
        {
            "schedule": {"every": 2},
            "max_runs": 2,
            "timeout": 3600,
            "concurrency": {"policy": "allow"},
            "retry": {"initial_interval": interval, "jitter": 0},
            "target": {"url": path},
        },
    )


async def until_told(fleet: Fleet, job: Job, times: int) -> None:
    """Until the runs beside the loop have heard so often how their job stands: no change waits for that."""
    ref = job.id.rpartition("/")[2]
    runs = [
        fleet.client.get_workflow_handle(names.run_workflow_id(TENANT, ref, names.suffix_of(row.key)))
        for row in (await view(job)).beside
    ]
    assert runs
    async with asyncio.timeout(20):
        for run in runs:
            while (await run.fetch_history()).to_json().count(f'"{names.SIGNAL_STANDING}"') < times:
                await asyncio.sleep(0.05)


def are_retrying(rows: list[ExecutionRow]) -> bool:
    return [row.outcome for row in rows] == ["retrying", "retrying"]


@pytest.mark.parametrize("stop", ["pause", "delete"])
@pytest.mark.parametrize("interval", [60, 20], ids=["waits-for-its-timer", "a-worker-holds-it"])
async def test_it_ends_the_retries_beside_the_loop_too(
    fleet: Fleet, sink: Sink, interval: int, stop: str
) -> None:
    path = f"/aside-{stop}-{interval}"
    answers(sink, path, 500, 500)
    job = await beside_twice(fleet, sink.url(path), interval)
    await stored(fleet, job, are_retrying)
    if stop == "pause":
        await pause(job)
    else:
        await delete(job)
    rows = await stored(fleet, job, lambda rows: all(row.ended_at for row in rows))
    assert told(rows) == [("dead_lettered", f"{stop.rstrip('e')}ed", 1)] * 2
    assert len(sink.at(path)) == 2
    if stop == "pause":
        await seen(job, lambda found: found.stats.dead_lettered == 2 and not found.beside)


async def test_a_retry_beside_the_loop_follows_when_the_pause_was_over_before_its_attempt(
    fleet: Fleet, sink: Sink
) -> None:
    """What is in flight is left alone; how the job stands when it fails is what counts."""
    gate, path = asyncio.Event(), "/aside-resumed"

    async def fail_once(_: Arrival, before: int) -> web.Response:
        await gate.wait()
        return web.Response(status=500 if before < 2 else 200)

    sink.answers[path] = fail_once
    job = await beside_twice(fleet, sink.url(path), 0.5)
    await sink.wait_for(path, 2)
    assert len((await pause(job)).in_flight) == 2
    await resume(job)
    await until_told(fleet, job, 2)
    gate.set()
    await seen(job, lambda found: found.stats.succeeded == 2)
    assert len(sink.at(path)) == 4
