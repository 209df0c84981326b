"""Records the histories of a release: ``python -m tests.replay.record 0.1.0``.

Done once for each release, just before it; what is recorded is never changed afterwards.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from temporalio.client import WorkflowHandle

from api.cli.ports import choose_ports
from infra.callback_token import CallbackTokens
from infra.settings import Settings
from infra.temporal.binary import find_binary
from infra.temporal.client import connect_when_ready
from infra.temporal.embedded import EmbeddedServer
from infra.temporal.namespace import ensure_search_attributes
from tests.fleet import Fleet, actor
from tests.sink import Arrival, Sink
from workflows.contracts import names
from workflows.contracts.backfill import BackfillRequest, CancelBackfill
from workflows.contracts.dead_letter import LetterRedriven, RedriveLetter
from workflows.contracts.job import (
    DeleteRequest,
    EditRequest,
    JobChanged,
    PauseRequest,
    ResumeRequest,
    Triggered,
    TriggerRequest,
)
from workflows.domain import callback

HISTORIES = Path(__file__).parent / "histories"
Job = WorkflowHandle[Any, Any]
Scene = Callable[[Fleet, Sink], Awaitable[Job]]


def target(sink: Sink, path: str) -> dict[str, Any]:
    return {"target": {"url": sink.url(path)}}


async def held(fleet: Fleet, sink: Sink) -> Job:
    """Runs from the hold, over a continue-as-new."""
    job = await fleet.create("held", {"schedule": {"every": 1}, **target(sink, "/held")})
    await sink.wait_for("/held", 55, within=90)
    return job


async def slept(fleet: Fleet, sink: Sink) -> Job:
    """A timer before each run."""
    job = await fleet.create("slept", {"schedule": {"every": 34}, **target(sink, "/slept")})
    await sink.wait_for("/slept", 2, within=90)
    return job


async def retried(fleet: Fleet, sink: Sink) -> Job:
    """Three attempts, then the dead letter, then a completed job."""

    async def fail(_: Arrival, before: int) -> web.Response:
        return web.Response(status=500)

    sink.answers["/retried"] = fail
    retry = {"max_attempts": 3, "initial_interval": 1, "jitter": 0}
    job = await fleet.create("retried", {"schedule": {"in": 1}, "retry": retry, **target(sink, "/retried")})
    await sink.wait_for("/retried", 3)
    await asyncio.sleep(1)
    return job


async def behind(fleet: Fleet, sink: Sink) -> Job:
    """An hour behind: one missed stretch, and the latest occurrence."""
    anchor = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    job = await fleet.create(
        "behind",
        {"schedule": {"every": 20, "anchor": anchor.isoformat()}, "catch_up": {"grace": 1},
         **target(sink, "/behind")},
        cursor=anchor,
    )  # fmt: skip
    await sink.wait_for("/behind", 2, within=60)
    return job


async def overlapped(fleet: Fleet, sink: Sink) -> Job:
    """Each run takes longer than the interval."""

    async def slow(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(2.5)
        return web.Response(text="ok")

    sink.answers["/overlapped"] = slow
    job = await fleet.create("overlapped", {"schedule": {"every": 2}, **target(sink, "/overlapped")})
    await sink.wait_for("/overlapped", 3)
    return job


async def changed(fleet: Fleet, sink: Sink) -> Job:
    """Paused, resumed, edited, triggered, deleted."""
    definition = {"schedule": {"every": 3}, **target(sink, "/changed")}
    job = await fleet.create("changed", definition)
    await sink.wait_for("/changed", 1)
    pause = PauseRequest(reason="recorded", actor=actor())
    changed = await job.execute_update(names.UPDATE_PAUSE, pause, result_type=JobChanged)
    trigger = TriggerRequest(request="by-hand", actor=actor())
    await job.execute_update(names.UPDATE_TRIGGER, trigger, result_type=Triggered)
    await sink.wait_for("/changed", 2)
    await job.execute_update(names.UPDATE_RESUME, ResumeRequest(actor=actor()), result_type=JobChanged)
    await sink.wait_for("/changed", 3)
    edited = changed.view.definition.model_copy(update={"priority": 1})
    edit = EditRequest(definition=edited, actor=actor())
    await job.execute_update(names.UPDATE_EDIT, edit, result_type=JobChanged)
    await sink.wait_for("/changed", 4)
    delete = DeleteRequest(actor=actor())
    await job.execute_update(names.UPDATE_DELETE, delete, result_type=JobChanged)
    await job.result()
    return job


async def forced(fleet: Fleet, sink: Sink) -> Job:
    """A run beside its job, retried once; its own history."""

    async def answer(_: Arrival, before: int) -> web.Response:
        await asyncio.sleep(3 if before == 0 else 0)
        return web.Response(status=500 if before == 1 else 200)

    sink.answers["/forced"] = answer
    retry = {"initial_interval": 1, "jitter": 0}
    job = await fleet.create("forced", {"schedule": {"in": 1}, "retry": retry, **target(sink, "/forced")})
    await sink.wait_for("/forced", 1)
    trigger = TriggerRequest(request="beside", force=True, actor=actor())
    await job.execute_update(names.UPDATE_TRIGGER, trigger, result_type=Triggered)
    beside = fleet.client.get_workflow_handle(names.run_workflow_id("acme", "forced", "beside"))
    await beside.result()
    return beside


async def grouped(fleet: Fleet, sink: Sink) -> Job:
    """Waits for its group behind another job each time, and is asked whether it holds its place."""

    async def slow(arrival: Arrival, before: int) -> web.Response:
        await asyncio.sleep(18 if before == 0 and arrival.path == "/grouped" else 1.5)
        return web.Response(text="ok")

    for name in ("grouped", "other"):
        sink.answers[f"/{name}"] = slow
    group = {"concurrency": {"group": "recorded"}}
    job = await fleet.create("grouped", {"schedule": {"every": 2}, **group, **target(sink, "/grouped")})
    await sink.wait_for("/grouped", 1)
    await fleet.create("other", {"schedule": {"every": 2}, **group, **target(sink, "/other")})
    await sink.wait_for("/grouped", 4, within=60)
    return job


async def group(fleet: Fleet, sink: Sink) -> Job:
    """The group of those two."""
    await sink.wait_for("/grouped", 4, within=90)
    return fleet.client.get_workflow_handle(names.group_workflow_id("acme", "recorded"))


async def slow(arrival: Arrival, before: int) -> web.Response:
    """Longer than the interval of the jobs below."""
    await asyncio.sleep(2.5)
    return web.Response(text="ok")


async def queued(fleet: Fleet, sink: Sink) -> Job:
    """Waits in line, with room for one."""
    sink.answers["/queued"] = slow
    policy = {"concurrency": {"policy": "queue", "max_queued": 1}}
    job = await fleet.create("queued", {"schedule": {"every": 1}, **policy, **target(sink, "/queued")})
    await sink.wait_for("/queued", 4, within=60)
    return job


async def replaced(fleet: Fleet, sink: Sink) -> Job:
    """Each run breaks off the one before; one waits for its retry when it is replaced."""

    async def answer(arrival: Arrival, before: int) -> web.Response:
        await asyncio.sleep(2.5 if before else 0)
        return web.Response(status=200 if before else 500)

    sink.answers["/replaced"] = answer
    policy = {"concurrency": {"policy": "replace"}, "retry": {"initial_interval": 20}}
    job = await fleet.create("replaced", {"schedule": {"every": 2}, **policy, **target(sink, "/replaced")})
    await sink.wait_for("/replaced", 4, within=60)
    return job


async def allowed(fleet: Fleet, sink: Sink) -> Job:
    """Two beside the loop at most, further ones in line; a trigger finds no place."""

    async def slower(arrival: Arrival, before: int) -> web.Response:
        await asyncio.sleep(4.5)
        return web.Response(text="ok")

    sink.answers["/allowed"] = slower
    policy = {"concurrency": {"policy": "allow", "limit": 3}}
    job = await fleet.create("allowed", {"schedule": {"every": 1}, **policy, **target(sink, "/allowed")})
    await sink.wait_for("/allowed", 3)
    trigger = TriggerRequest(request="in-line", actor=actor())
    await job.execute_update(names.UPDATE_TRIGGER, trigger, result_type=Triggered)
    await sink.wait_for("/allowed", 9, within=60)
    return job


async def redriven(fleet: Fleet, sink: Sink) -> Job:
    """A dead letter, an incident, a redrive that succeeds."""

    async def answer(_: Arrival, before: int) -> web.Response:
        return web.Response(status=500 if before < 2 else 200)

    sink.answers["/redriven"] = answer
    retry = {"max_attempts": 2, "initial_interval": 1, "jitter": 0}
    job = await fleet.create("redriven", {"schedule": {"in": 1}, "retry": retry, **target(sink, "/redriven")})
    arrivals = await sink.wait_for("/redriven", 2)
    letter = fleet.client.get_workflow_handle(names.dead_letter_workflow_id(arrivals[0].key))
    await asyncio.sleep(3)
    request = RedriveLetter(actor=actor())
    await letter.execute_update(names.UPDATE_REDRIVE, request, result_type=LetterRedriven)
    await letter.result()
    await asyncio.sleep(2)
    return job


async def letter(fleet: Fleet, sink: Sink) -> Job:
    """The dead letter of that job."""
    arrivals = await sink.wait_for("/redriven", 3, within=60)
    found = fleet.client.get_workflow_handle(names.dead_letter_workflow_id(arrivals[0].key))
    await found.result()
    return found


async def incident(fleet: Fleet, sink: Sink) -> Job:
    """The incident of that job, told and over."""
    await sink.wait_for("/redriven", 3, within=60)
    found = fleet.client.get_workflow_handle(names.incident_workflow_id("acme", "dead_letter", "redriven"))
    await found.result()
    return found


async def called_back(fleet: Fleet, sink: Sink) -> Job:
    """With its target, lost, delivered again, completed by the API's means."""

    async def accept(_: Arrival, before: int) -> web.Response:
        return web.Response(status=202)

    sink.answers["/called-back"] = accept
    definition = {"schedule": {"in": 1}, "completion": "callback", "heartbeat_timeout": 3}
    job = await fleet.create("called-back", {**definition, **target(sink, "/called-back")})
    _, again = await sink.wait_for("/called-back", 2)
    tokens = CallbackTokens(fleet.settings.signing_secret.get_secret_value())
    claims = tokens.open(again.headers["carillon-callback"].rpartition("/")[2])
    activity = fleet.client.get_async_activity_handle(task_token=base64.b64decode(claims.task_token))
    await activity.complete(callback.succeeded(claims, "done", datetime.now(UTC)))
    await asyncio.sleep(2)
    return job


async def backfilled(fleet: Fleet, sink: Sink) -> Job:
    """Ten occurrences of the past between regular ones, then one that is cancelled."""
    anchor = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    schedule = {"every": 4, "anchor": anchor.isoformat()}
    job = await fleet.create("backfilled", {"schedule": schedule, **target(sink, "/backfilled")})
    await sink.wait_for("/backfilled", 1)
    for cancelled in (False, True):
        request = BackfillRequest(
            from_=anchor, to=anchor + timedelta(seconds=40), only="all", total=10, actor=actor()
        )
        await job.execute_update(names.UPDATE_BACKFILL, request)
        await sink.wait_for("/backfilled", len(sink.at("/backfilled")) + 4, within=60)
        if cancelled:
            cancel = CancelBackfill(number=2, actor=actor())
            await job.execute_update(names.UPDATE_CANCEL_BACKFILL, cancel)
        else:
            await sink.wait_for("/backfilled", len(sink.at("/backfilled")) + 9, within=60)
    await sink.wait_for("/backfilled", len(sink.at("/backfilled")) + 2)
    return job


SCENES: tuple[Scene, ...] = (
    held, slept, retried, behind, overlapped, changed, forced, grouped, group, queued, replaced, allowed,
    redriven, letter, incident, called_back, backfilled,
)  # fmt: skip


async def record(release: str, settings: Settings) -> None:
    client = await connect_when_ready(settings, within=timedelta(seconds=30))
    await ensure_search_attributes(client)
    sink = await Sink().start()
    fleet = await Fleet(client, settings).start()
    into = HISTORIES / release
    into.mkdir(parents=True)
    try:
        jobs = await asyncio.gather(*(scene(fleet, sink) for scene in SCENES))
        for scene, job in zip(SCENES, jobs, strict=True):
            runs = [run async for run in client.list_workflows(f'WorkflowId="{job.id}"')]
            for number, run in enumerate(sorted(runs, key=lambda run: run.start_time), 1):
                history = await client.get_workflow_handle(job.id, run_id=run.run_id).fetch_history()
                path = into / f"{scene.__name__}-{number}.json.gz"
                path.write_bytes(gzip.compress(history.to_json().encode(), mtime=0))
    finally:
        await fleet.stop()
        await sink.stop()


def main(release: str) -> None:
    port = choose_ports("127.0.0.1", {"--temporal-port": 0})["--temporal-port"]
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedServer(
            binary=find_binary(environment=os.environ), data_dir=Path(directory), port=port, ui_port=None,
            host="127.0.0.1",
        )  # fmt: skip
        with subprocess.Popen(
            server.command(), cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            settings = Settings(
                temporal_address=server.address,
                signing_secret="histories-hold-no-secret-of-anybody",
                allow_networks=("127.0.0.0/8",),
                public_url="http://127.0.0.1:9",
            )
            try:
                asyncio.run(record(release, settings))
            finally:
                process.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
