"""Manual runs: at once, once, and beside another run only where the job allows it."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from tests.fleet import Fleet, fresh, view
from tests.sink import Arrival, Sink
from tests.workflows.asking import Gate, at, ended, from_now, held, pause, refusal, seen, stored, trigger
from workflows.contracts import failures
from workflows.contracts.records import Pause

UPDATES = True


async def test_a_manual_run_goes_before_one_that_is_only_held(fleet: Fleet, sink: Sink) -> None:
    due = from_now(25).replace(microsecond=0)
    job = await fleet.create(
        fresh("before"),
        {"schedule": {"at": at(due)}, "target": {"url": sink.url("/before"), "body": {"a": 1}}},
    )
    await held(job)
    answer = await trigger(job, "first", body={"own": True})
    assert not answer.repeated
    [arrival] = await sink.wait_for("/before", 1, within=20)
    assert arrival.key == answer.execution.key == f"acme/{job.id.rpartition('/')[2]}:manual-first"
    assert arrival.headers["carillon-trigger"] == "manual"
    assert json.loads(arrival.body) == {"own": True}
    [row] = [row for row in await stored(fleet, job, ended) if row.ended_at]
    assert (row.outcome, row.trigger) == ("succeeded", "manual")
    held_again = await held(job)
    assert held_again.current is not None
    assert held_again.current.scheduled_time == due


async def test_a_repeated_request_runs_once_and_another_is_refused_meanwhile(
    fleet: Fleet, sink: Sink
) -> None:
    gate = Gate(sink, "/once")
    job = await fleet.create(
        fresh("once"), {"schedule": {"at": "2035-01-01T00:00:00Z"}, "target": {"url": sink.url("/once")}}
    )
    first = await trigger(job, "r1")
    [arrival] = await sink.wait_for("/once", 1)
    again = await trigger(job, "r1")
    assert (again.repeated, again.execution.key) == (True, first.execution.key)
    assert await refusal(trigger(job, "r2")) == (failures.RUN_ACTIVE, first.execution.key)
    gate.open()
    await seen(job, lambda found: found.stats.succeeded == 1)
    assert (await trigger(job, "r1")).repeated
    assert not (await trigger(job, "r2")).repeated
    arrivals = await sink.wait_for("/once", 2)
    assert [one.key.rpartition(":")[2] for one in arrivals] == ["manual-r1", "manual-r2"]
    assert arrival.execution_id.endswith("manual-r1:1")


async def test_a_paused_and_a_completed_job_can_be_run(fleet: Fleet, sink: Sink) -> None:
    target = {"url": sink.url("/still")}
    paused = await fleet.create(
        fresh("paused"), {"schedule": {"every": 3600}, "target": target}, pause=Pause(since=from_now(-60))
    )
    completed = await fleet.create(fresh("done"), {"schedule": {"in": 0}, "target": target})
    await seen(completed, lambda found: found.status == "completed")
    for job in (paused, completed):
        status = (await view(job)).status
        before = len(sink.at("/still"))
        await trigger(job)
        arrivals = await sink.wait_for("/still", before + 1)
        assert arrivals[-1].headers["carillon-trigger"] == "manual"
        after = await seen(
            job, lambda found: found.last_run is not None and found.last_run.trigger == "manual"
        )
        assert (after.status, after.current) == (status, None)


async def test_a_pause_leaves_a_manual_run_alone(fleet: Fleet, sink: Sink) -> None:
    gate = Gate(sink, "/alone")
    job = await fleet.create(
        fresh("alone"), {"schedule": {"every": 3600}, "target": {"url": sink.url("/alone")}}
    )
    await trigger(job)
    await sink.wait_for("/alone", 1)
    assert (await pause(job)).in_flight == []
    gate.open()
    found = await seen(job, lambda found: found.stats.runs == 1)
    assert (found.status, found.stats.succeeded) == ("paused", 1)


ALLOW_TWO = {"policy": "allow", "limit": 2}
FAR = {"at": "2035-01-01T00:00:00Z"}


async def test_what_is_asked_for_in_one_moment_runs_side_by_side_where_that_is_allowed(
    fleet: Fleet, sink: Sink
) -> None:
    """The loop takes the first; another that came before it did so does not wait for its end."""
    gate = Gate(sink, "/at-once")
    job = await fleet.create(
        fresh("at-once"),
        {"schedule": FAR, "target": {"url": sink.url("/at-once")}, "concurrency": {"policy": "allow"}},
    )
    await asyncio.gather(*(trigger(job, f"r{number}") for number in range(4)))
    await sink.wait_for("/at-once", 4)
    gate.open()
    await seen(job, lambda found: found.stats.succeeded == 4)


async def test_what_waits_for_room_is_begun_beside_a_run_that_goes_on(fleet: Fleet, sink: Sink) -> None:
    """In flight or waiting for its retry: of two places one is free when the run beside it ends."""
    waits, ends = asyncio.Event(), asyncio.Event()

    async def answer(arrival: Arrival, _: int) -> web.Response:
        request = arrival.key.rpartition("-")[2]
        if request == "retried":
            return web.Response(status=500)
        await {"long": waits, "beside": ends}.get(request, waits).wait()
        return web.Response(text="ok")

    sink.answers["/room"] = answer
    target = {"url": sink.url("/room")}
    for first in ("long", "retried"):
        ends.clear()
        job = await fleet.create(
            fresh(first),
            {
                "schedule": FAR, "target": target, "concurrency": ALLOW_TWO,
                "retry": {"initial_interval": 600, "jitter": 0},
            },
        )  # fmt: skip
        before = len(sink.at("/room"))
        await trigger(job, first)
        await sink.wait_for("/room", before + 1)
        await trigger(job, "beside")
        await trigger(job, "waiting")
        await sink.wait_for("/room", before + 2)
        assert [row.key.rpartition("-")[2] for row in (await view(job)).waiting] == ["waiting"]
        ends.set()
        arrivals = await sink.wait_for("/room", before + 3)
        assert arrivals[-1].key.endswith("-waiting")
    waits.set()
