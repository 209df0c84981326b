"""What can be asked of a job beside its loop: forced runs, skips, cancellations, each once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from tests.fleet import TENANT, Fleet, actor, fresh, view
from tests.sink import Arrival, Sink
from workflows.contracts import failures, names
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import (
    CancelRequest,
    DeleteRequest,
    JobChanged,
    JobState,
    JobView,
    ManualRun,
    PauseRequest,
    ResumeRequest,
    SkipRequest,
    Triggered,
    TriggerRequest,
)
from workflows.domain import job_sources

UPDATES = True

Job = WorkflowHandle[Any, Any]


async def ask(job: Job, update: str, request: Any) -> JobChanged:
    return await job.execute_update(update, request, result_type=JobChanged)


async def until(job: Job, condition: Any, within: float = 60) -> JobView:
    async with asyncio.timeout(within):
        while not condition(seen := await view(job)):
            await asyncio.sleep(0.05)
    return seen


def hang_first(seconds: float) -> Any:
    async def answer(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(seconds if before == 0 else 0)
        return web.Response(text="ok")

    return answer


async def test_a_forced_run_runs_beside_the_one_that_is_active(fleet: Fleet, sink: Sink) -> None:
    """Its end is counted in the job, whose own run goes on undisturbed."""
    sink.answers["/beside"] = hang_first(6)
    job_id = fresh("beside")
    job = await fleet.create(job_id, {"schedule": {"in": 1}, "target": {"url": sink.url("/beside")}})
    await sink.wait_for("/beside", 1)
    request = TriggerRequest(request="now", force=True, actor=actor())
    triggered = await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    again = await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    assert (triggered.repeated, again.repeated) == (False, True)
    _, forced = await sink.wait_for("/beside", 2, within=5.5)
    assert forced.key == f"acme/{job_id}:manual-now"
    assert forced.headers["carillon-trigger"] == "manual"
    seen = await until(job, lambda seen: seen.stats.runs == 2)
    assert (seen.stats.succeeded, seen.beside) == (2, [])
    assert len(sink.at("/beside")) == 2


async def test_a_run_stopped_before_its_first_step_tells_its_end(fleet: Fleet, sink: Sink) -> None:
    """The stop overtakes the first workflow task; the job must not take the run for alive for ever."""
    name, now = fresh("overtaken"), datetime.now(UTC)
    definition = {"schedule": {"cron": "0 0 1 1 *"}, "target": {"url": sink.url("/overtaken")}}
    state = JobState(
        tenant=TENANT, job=name, ref=name, definition=JobDefinition.model_validate(definition),
        created_at=now, updated_at=now, cursor=now,
    )  # fmt: skip
    aside = job_sources.alone(state)
    run = job_sources.begin_manual(aside, ManualRun(request="now", at=now, forced=True))
    job_sources.set_beside(run)
    row = job_sources.beside_row(state, run)
    job = await fleet.create(name, definition, beside=[row])
    await until(job, lambda seen: len(seen.beside) == 1)
    await fleet.client.start_workflow(
        names.RUN_WORKFLOW, aside, id=names.run_workflow_id(TENANT, name, row.name),
        task_queue=names.MAIN_QUEUE, start_signal=names.SIGNAL_STOP, start_signal_args=["asked"],
    )  # fmt: skip
    seen = await until(job, lambda seen: not seen.beside)
    assert seen.last_run is not None
    assert (seen.last_run.key, seen.last_run.outcome, sink.at("/overtaken")) == (row.key, "cancelled", [])


@pytest.mark.parametrize(("reason", "outcome"), [("replaced", "replaced"), ("deleted", "cancelled")])
async def test_a_run_that_is_stopped_while_it_waits_for_a_retry_says_why(
    fleet: Fleet, sink: Sink, reason: str, outcome: str
) -> None:
    path = f"/stopped/{reason}"
    sink.answers[path] = answer_500
    retry = {"initial_interval": 600, "jitter": 0}
    job = await fleet.create(
        fresh("stopped"), {"schedule": {"in": 1}, "target": {"url": sink.url(path)}, "retry": retry}
    )
    await sink.wait_for(path, 1)
    request = TriggerRequest(request="forced", force=True, actor=actor())
    await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    await sink.wait_for(path, 2)
    [row] = (await view(job)).beside
    run_id = names.run_workflow_id(TENANT, job.id.rpartition("/")[2], names.suffix_of(row.key))
    await asyncio.sleep(0.5)
    await fleet.client.get_workflow_handle(run_id).signal(names.SIGNAL_STOP, reason)
    seen = await until(job, lambda seen: seen.beside == [])
    assert seen.last_run is not None
    assert (seen.last_run.outcome, seen.last_run.reason) == (outcome, reason)


async def answer_500(_: Arrival, before: int) -> web.Response:
    return web.Response(status=500)


async def test_a_forced_run_retries_like_any_other_and_can_be_cancelled(fleet: Fleet, sink: Sink) -> None:
    async def answer(_: Arrival, before: int) -> web.Response:
        if before == 0:
            await asyncio.sleep(2)
        return web.Response(status=200 if before == 0 else 500)

    sink.answers["/retry"] = answer
    job = await fleet.create(
        fresh("retry"),
        {
            "schedule": {"in": 1},
            "retry": {"initial_interval": 1, "factor": 1, "jitter": 0, "max_attempts": 50},
            "target": {"url": sink.url("/retry")},
        },
    )
    await sink.wait_for("/retry", 1)
    request = TriggerRequest(request="forced", force=True, actor=actor())
    triggered = await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    arrivals = await sink.wait_for("/retry", 3)
    assert arrivals[2].execution_id == f"{triggered.execution.key}:2"
    changed = await ask(job, names.UPDATE_CANCEL, CancelRequest(key=triggered.execution.key, actor=actor()))
    assert [one.state for one in changed.in_flight] == ["stopping"]
    seen = await until(job, lambda seen: seen.beside == [])
    assert seen.last_run is not None
    assert (seen.last_run.key, seen.last_run.outcome) == (triggered.execution.key, "cancelled")


async def test_a_skipped_occurrence_is_recorded_and_the_others_run(fleet: Fleet, sink: Sink) -> None:
    job_id = fresh("skip")
    job = await fleet.create(job_id, {"schedule": {"every": 2}, "target": {"url": sink.url("/skip")}})
    seen = await until(job, lambda seen: len(seen.plan) > 3)
    out, back = seen.plan[1].scheduled_time, seen.plan[2].scheduled_time
    for instant, skipped in ((out, True), (back, True), (back, False)):
        request = SkipRequest(scheduled_time=instant, skipped=skipped, actor=actor())
        changed = await ask(job, names.UPDATE_SKIP, request)
    assert changed.view.skips == [out]
    arrivals = await sink.wait_for("/skip", 3)
    times = {arrival.headers["carillon-scheduled-time"] for arrival in arrivals}
    assert out.strftime("%Y-%m-%dT%H:%M:%SZ") not in times
    assert back.strftime("%Y-%m-%dT%H:%M:%SZ") in times
    [row] = [row for row in fleet.recorder.executions(job_id).values() if row.outcome == "skipped"]
    assert (row.scheduled_time, row.reason, row.count) == (out, "asked", 1)
    assert (await view(job)).skips == []


async def test_a_held_run_that_is_skipped_is_not_sent(fleet: Fleet, sink: Sink) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    job = await fleet.create(
        fresh("held"), {"schedule": {"at": at.isoformat()}, "target": {"url": sink.url("/held")}}
    )
    await until(job, lambda seen: seen.current is not None)
    changed = await ask(job, names.UPDATE_SKIP, SkipRequest(scheduled_time=at, actor=actor()))
    assert changed.in_flight == []
    seen = await until(job, lambda seen: seen.status == "completed")
    assert (seen.stats.runs, seen.stats.skipped) == (0, 1)
    assert sink.at("/held") == []


async def test_a_past_occurrence_cannot_be_skipped(fleet: Fleet, sink: Sink) -> None:
    job = await fleet.create(fresh("past"), {"schedule": {"every": 60}, "target": {"url": sink.url("/past")}})
    request = SkipRequest(scheduled_time=datetime(2020, 1, 1, tzinfo=UTC), actor=actor())
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await ask(job, names.UPDATE_SKIP, request)
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == failures.NO_SUCH_OCCURRENCE


@pytest.mark.parametrize("when", ["held", "in flight", "waiting for a retry"])
async def test_a_cancelled_execution_ends_cancelled_and_the_next_one_runs(
    fleet: Fleet, sink: Sink, when: str
) -> None:
    path = f"/cancel/{when.replace(' ', '-')}"

    async def answer(_: Arrival, before: int) -> web.Response:
        if before == 0 and when == "in flight":
            await asyncio.sleep(30)
        return web.Response(status=500 if before == 0 and when == "waiting for a retry" else 200)

    sink.answers[path] = answer
    job_id = fresh("cancel")
    job = await fleet.create(
        job_id,
        {
            "schedule": {"every": 4},
            "retry": {"initial_interval": 60, "jitter": 0},
            "target": {"url": sink.url(path)},
        },
    )
    if when != "held":
        await sink.wait_for(path, 1)
    wanted = "retrying" if when == "waiting for a retry" else "held"
    seen = await until(job, lambda seen: seen.current is not None and seen.current.outcome == wanted)
    assert seen.current is not None
    key = seen.current.key
    changed = await ask(job, names.UPDATE_CANCEL, CancelRequest(key=key, actor=actor()))
    assert changed.in_flight == []
    seen = await until(job, lambda seen: seen.last_run is not None)
    assert seen.last_run is not None
    assert (seen.last_run.key, seen.last_run.outcome, seen.last_run.reason) == (key, "cancelled", "asked")
    sent = len(sink.at(path))
    arrivals = await sink.wait_for(path, sent + 1)
    assert arrivals[-1].key != key
    with pytest.raises(WorkflowUpdateFailedError):
        await ask(job, names.UPDATE_CANCEL, CancelRequest(key=key, actor=actor()))


async def test_a_repeated_call_is_answered_and_not_done_again(fleet: Fleet, sink: Sink) -> None:
    """The same operation twice: the second pause does not undo the resume in between."""
    job = await fleet.create(
        fresh("twice"), {"schedule": {"every": 60}, "target": {"url": sink.url("/twice")}}
    )
    once = actor().model_copy(update={"operation": "op-1"})
    await ask(job, names.UPDATE_PAUSE, PauseRequest(actor=once))
    await ask(job, names.UPDATE_RESUME, ResumeRequest(actor=actor()))
    changed = await ask(job, names.UPDATE_PAUSE, PauseRequest(actor=once))
    assert changed.view.status == "active"


async def test_deleting_with_cancel_stops_a_run_beside_too(fleet: Fleet, sink: Sink) -> None:
    async def hang(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    sink.answers["/both"] = hang
    job_id = fresh("both")
    job = await fleet.create(job_id, {"schedule": {"in": 1}, "target": {"url": sink.url("/both")}})
    await sink.wait_for("/both", 1)
    request = TriggerRequest(request="too", force=True, actor=actor())
    await job.execute_update(names.UPDATE_TRIGGER, request, result_type=Triggered)
    await sink.wait_for("/both", 2)
    await ask(job, names.UPDATE_DELETE, DeleteRequest(running="cancel", actor=actor()))
    await job.result()
    beside = fleet.client.get_workflow_handle(names.run_workflow_id("acme", job_id, "too"))
    async with asyncio.timeout(10):
        await beside.result()
    rows = fleet.recorder.executions(job_id).values()
    assert [row.outcome for row in rows] == ["cancelled", "cancelled"]


async def test_a_skip_at_the_firing_is_refused_when_the_run_has_fired(fleet: Fleet, sink: Sink) -> None:
    """Whatever the instant: an answer that said skipped means that it is not sent, and a row says so."""
    outcomes = set()
    for offset in (-0.2, -0.05, -0.02, 0.0, 0.01):
        path = f"/edge/{offset}"
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
        schedule = {"every": 3600, "anchor": at.isoformat()}
        job = await fleet.create(fresh("edge"), {"schedule": schedule, "target": {"url": sink.url(path)}})
        await until(job, lambda seen: seen.current is not None)
        await asyncio.sleep((at - datetime.now(UTC)).total_seconds() + offset)
        try:
            await ask(job, names.UPDATE_SKIP, SkipRequest(scheduled_time=at, actor=actor()))
        except WorkflowUpdateFailedError:
            await sink.wait_for(path, 1)
            outcomes.add("refused")
            assert (await view(job)).skips == []
        else:
            seen = await until(job, lambda seen: seen.stats.skipped == 1)
            assert (sink.at(path), seen.stats.runs) == ([], 0)
            outcomes.add("skipped")
    assert "skipped" in outcomes
