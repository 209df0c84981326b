"""What jobs tell of themselves, from what happens to them to the receiver of their tenant's alerts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from temporalio.client import Client
from temporalio.worker import Replayer

from infra.settings import Settings
from infra.temporal.converter import DATA_CONVERTER
from tests.fleet import Fleet, actor, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import Gate, answers, at, delete, from_now, resume, seen, trigger
from workers.queues import WORKFLOWS, workflow_runner
from workflows.contracts.incident import IncidentKind
from workflows.contracts.job import Triggered, TriggerRequest
from workflows.contracts.names import UPDATE_TRIGGER, incident_workflow_id

ALERTS = "/alerts"
NEW_YEAR = {"cron": "0 9 1 1 *"}
ONCE = {"max_attempts": 1}


@pytest.fixture
async def alerted(temporal_client: Client, temporal_settings: Settings, sink: Sink) -> AsyncIterator[Fleet]:
    """A worker with an alert URL; at the end every job's history is replayed, and those of its incidents."""
    settings = temporal_settings.model_copy(
        update={"alert_url": sink.url(ALERTS), "max_cached_workflows": 1000}
    )
    fleet = await Fleet(temporal_client, settings).start()
    yield fleet
    replayer = Replayer(
        workflows=list(WORKFLOWS), data_converter=DATA_CONVERTER, workflow_runner=workflow_runner()
    )
    histories = list(fleet.jobs)
    for row in fleet.incidents.rows.values():
        name = incident_workflow_id(row.tenant, row.kind, row.subject)
        histories.append(temporal_client.get_workflow_handle(name))
    for workflow in histories:
        await replayer.replay_workflow(await workflow.fetch_history())
    await fleet.stop()


def messages(sink: Sink, job: str) -> list[dict[str, Any]]:
    found = [json.loads(arrival.body) for arrival in sink.at(ALERTS)]
    return [body for body in found if body["job"] == job]


async def told(sink: Sink, job: str, kind: IncidentKind, message: str, within: float = 60) -> dict[str, Any]:
    """The one message of this kind, as soon as it is there."""
    async with asyncio.timeout(within):
        while True:
            found = [one for one in messages(sink, job) if (one["kind"], one["type"]) == (kind, message)]
            if found:
                assert len(found) == 1
                return found[0]
            await asyncio.sleep(0.05)


async def test_eight_missed_hours_are_one_incident_and_its_recovery(alerted: Fleet, sink: Sink) -> None:
    job, begun = fresh("missed"), (from_now(-5) - timedelta(hours=8)).replace(microsecond=0)
    schedule = {"every": 60, "anchor": at(begun)}
    await alerted.create(
        job,
        {"schedule": schedule, "target": {"url": sink.url("/missed")}},
        cursor=begun - timedelta(seconds=1),
    )
    opened = await told(sink, job, "missed", "incident.opened")
    assert "479 occurrences" in opened["detail"]
    recovered = await told(sink, job, "missed", "incident.recovered")
    assert (recovered["id"], recovered["count"]) == (opened["id"], 1)
    assert "succeeded" in recovered["detail"]
    assert len(messages(sink, job)) == 2


async def test_a_job_pauses_after_three_failures_until_it_is_resumed(alerted: Fleet, sink: Sink) -> None:
    """With one incident for its dead letters and one for the pause; neither is told again."""
    job = fresh("pausing")
    answers(sink, "/pausing", 500, 500, 500)
    handle = await alerted.create(
        job,
        {
            "schedule": {"every": 1},
            "target": {"url": sink.url("/pausing")},
            "retry": ONCE,
            "pause_after": 3,
        },
    )
    paused = await seen(handle, lambda found: found.status == "paused")
    assert paused.pause is not None
    assert (paused.pause.by, paused.stats.runs) == ("carillon", 3)
    await told(sink, job, "paused_after_failures", "incident.opened")
    await told(sink, job, "dead_letter", "incident.opened")
    await resume(handle)
    over = await told(sink, job, "paused_after_failures", "incident.recovered")
    assert "goes on" in over["detail"]
    await told(sink, job, "dead_letter", "incident.recovered")
    assert len(messages(sink, job)) == 4
    assert len(sink.at("/pausing")) >= 4


async def test_no_success_for_a_time_is_told_although_nothing_runs(alerted: Fleet, sink: Sink) -> None:
    job = fresh("silent")
    handle = await alerted.create(
        job,
        {
            "schedule": NEW_YEAR,
            "target": {"url": sink.url("/silent")},
            "alerts": {"no_success_for": 2},
        },
    )
    opened = await told(sink, job, "no_success", "incident.opened")
    assert sink.at("/silent") == []
    await trigger(handle)
    over = await told(sink, job, "no_success", "incident.recovered")
    assert over["id"] == opened["id"]


async def test_no_success_and_an_overrun_are_told_while_the_run_lasts(alerted: Fleet, sink: Sink) -> None:
    """The job learns of both when it ends, and says so when they are over."""
    job = fresh("endless")
    gate = Gate(sink, "/endless")
    await alerted.create(
        job,
        {
            "schedule": {"every": 1},
            "target": {"url": sink.url("/endless")},
            "alerts": {"no_success_for": 3, "consecutive_skips": 2},
        },
    )
    await told(sink, job, "no_success", "incident.opened")
    await told(sink, job, "consecutive_skips", "incident.opened")
    assert len(sink.at("/endless")) == 1
    gate.open()
    await told(sink, job, "no_success", "incident.recovered")
    await told(sink, job, "consecutive_skips", "incident.recovered")
    assert len(messages(sink, job)) == 4


async def test_runs_do_not_wait_for_a_receiver_that_hangs(alerted: Fleet, sink: Sink) -> None:
    job, stuck = fresh("prompt"), Gate(sink, ALERTS)
    answers(sink, "/prompt", *[500] * 99)
    await alerted.create(
        job, {"schedule": {"every": 1}, "target": {"url": sink.url("/prompt")}, "retry": ONCE}
    )
    await sink.wait_for(ALERTS, 1)
    before = len(sink.at("/prompt"))
    arrivals = (await sink.wait_for("/prompt", before + 4))[before:]
    scheduled = [arrival.headers["carillon-scheduled-time"] for arrival in arrivals]
    assert len(set(scheduled)) == len(arrivals)
    assert len(sink.at(ALERTS)) == 1, "its message is under way still"
    stuck.open()
    await told(sink, job, "dead_letter", "incident.opened")


async def test_a_deleted_job_leaves_no_incident_open(alerted: Fleet, sink: Sink) -> None:
    job = fresh("deleted")
    answers(sink, "/deleted", 404)
    handle = await alerted.create(job, {"schedule": NEW_YEAR, "target": {"url": sink.url("/deleted")}})
    await trigger(handle)
    await told(sink, job, "dead_letter", "incident.opened")
    await delete(handle)
    over = await told(sink, job, "dead_letter", "incident.recovered")
    assert over["detail"] == "the job was deleted"
    await handle.result()


async def test_a_run_beside_the_loop_may_be_the_failure_that_pauses_its_job(
    alerted: Fleet, sink: Sink
) -> None:
    """The run that is in flight is left to end, and its success is not the end of the pause."""
    job, gate = fresh("beside"), asyncio.Event()

    async def answer(_: Arrival, before: int) -> web.Response:
        if before == 0:
            await gate.wait()
        return web.Response(status=200 if before == 0 else 404)

    sink.answers["/beside"] = answer
    handle = await alerted.create(
        job, {"schedule": NEW_YEAR, "target": {"url": sink.url("/beside")}, "pause_after": 1}
    )
    await trigger(handle, "first")
    await sink.wait_for("/beside", 1)
    forced = TriggerRequest(request="second", force=True, actor=actor())
    await handle.execute_update(UPDATE_TRIGGER, forced, result_type=Triggered)
    await told(sink, job, "dead_letter", "incident.opened")
    await told(sink, job, "paused_after_failures", "incident.opened")
    gate.set()
    await told(sink, job, "dead_letter", "incident.recovered")
    paused = await seen(handle, lambda found: found.stats.runs == 2)
    assert (paused.status, paused.stats.succeeded) == ("paused", 1)
    await resume(handle)
    await told(sink, job, "paused_after_failures", "incident.recovered")
