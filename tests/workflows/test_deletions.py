"""A deletion: what is held is not sent, what is in flight finishes or is broken off, the workflow ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fleet import Fleet, fresh
from tests.sink import Sink
from tests.workflows.asking import (
    Gate,
    answers,
    at,
    delete,
    from_now,
    held,
    refusal,
    seen,
    stored,
    told,
    trigger,
)
from workflows.contracts import failures

UPDATES = True

BOTH = pytest.mark.parametrize("cancel", [False, True], ids=["finish", "cancel"])


class Silent:
    """A target that reads a request and never answers."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.broken_off = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requested.set()
        await reader.read()
        self.broken_off.set()
        writer.close()


@asynccontextmanager
async def silent_target() -> AsyncIterator[Silent]:
    target = Silent()
    server = await asyncio.start_server(target.serve, "127.0.0.1", 0)
    target.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server:
        yield target


@BOTH
async def test_a_held_run_is_not_sent(fleet: Fleet, sink: Sink, cancel: bool) -> None:
    path = f"/gone-{cancel}"
    job = await fleet.create(
        fresh("gone"), {"schedule": {"at": at(from_now(1.5))}, "target": {"url": sink.url(path)}}
    )
    await held(job)
    changed = await delete(job, cancel=cancel)
    assert (changed.in_flight, changed.view.status) == ([], "deleted")
    async with asyncio.timeout(10):
        await job.result()
    assert told(await stored(fleet, job, bool)) == [("cancelled", "deleted", 1)]
    assert sink.at(path) == []


@BOTH
@pytest.mark.parametrize("interval", [60, 20], ids=["waits-for-its-timer", "a-worker-holds-it"])
async def test_a_waiting_retry_ends_as_a_dead_letter(
    fleet: Fleet, sink: Sink, cancel: bool, interval: int
) -> None:
    path = f"/waiting-{cancel}-{interval}"
    answers(sink, path, 500)
    job = await fleet.create(
        fresh("waiting"),
        {
            "schedule": {"in": 0},
            "retry": {"initial_interval": interval, "jitter": 0},
            "target": {"url": sink.url(path)},
        },
    )
    await seen(job, lambda found: found.current is not None and found.current.outcome == "retrying")
    assert (await delete(job, cancel=cancel)).in_flight == []
    async with asyncio.timeout(10):
        await job.result()
    assert told(await stored(fleet, job, bool)) == [("dead_lettered", "deleted", 1)]


async def test_a_run_in_flight_may_finish(fleet: Fleet, sink: Sink) -> None:
    gate = Gate(sink, "/finish")
    job = await fleet.create(fresh("finish"), {"schedule": {"in": 0}, "target": {"url": sink.url("/finish")}})
    [arrival] = await sink.wait_for("/finish", 1)
    changed = await delete(job)
    assert [(one.key, one.state) for one in changed.in_flight] == [(arrival.key, "in_flight")]
    kind, _ = await refusal(trigger(job))
    assert kind == failures.JOB_DELETED
    gate.open()
    async with asyncio.timeout(10):
        await job.result()
    assert told(await stored(fleet, job, lambda rows: bool(rows[0].ended_at))) == [("succeeded", None, 1)]


async def test_a_request_on_its_way_is_broken_off(fleet: Fleet) -> None:
    """The target sees its connection end; the run is recorded as cancelled, with its firing."""
    async with silent_target() as target:
        job = await fleet.create(fresh("broken"), {"schedule": {"in": 0}, "target": {"url": target.url}})
        await target.requested.wait()
        changed = await delete(job, cancel=True)
        assert changed.in_flight == []
        async with asyncio.timeout(10):
            await target.broken_off.wait()
            await job.result()
    [row] = await stored(fleet, job, lambda rows: any(row.ended_at for row in rows))
    assert told([row]) == [("cancelled", "deleted", 1)]
    assert row.started_at is not None


async def test_a_completed_job_that_is_kept_for_no_time_ends_by_itself(fleet: Fleet, sink: Sink) -> None:
    job = await fleet.create(
        fresh("kept"), {"schedule": {"in": 0}, "delete_after": 0, "target": {"url": sink.url("/kept")}}
    )
    async with asyncio.timeout(15):
        await job.result()
    [row] = await stored(fleet, job, lambda rows: any(row.ended_at for row in rows))
    assert row.outcome == "succeeded"
    ref = job.id.rpartition("/")[2]
    changes = [one.job for one in fleet.recorder.records if one.ref == ref and one.job is not None]
    assert max(changes, key=lambda one: one.change).status == "deleted"
