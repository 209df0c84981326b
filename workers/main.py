"""Composition root of the worker process."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.alert_urls import AlertUrls
from activities.attempt import Attempts, Places, ReturnRate
from activities.backfill import Backfills
from activities.bulk import Bulk, Pace
from activities.callback import Callbacks
from activities.clock import ServerOffset, SystemClock
from activities.dead_letters import Letters
from activities.fence import Fences
from activities.incidents import Incidents, tell
from activities.planning import Planning
from activities.records import Records
from activities.targets.http import HttpSender
from activities.turnstile import Turnstile
from infra.database.audit import AuditLog
from infra.database.dead_letters import DeadLetters
from infra.database.engine import Database
from infra.database.errors import DatabaseError
from infra.database.executions import History
from infra.database.incidents import IncidentLog
from infra.database.jobs import JobIndex
from infra.database.tenants import Tenants
from infra.database.writer import RecordWriter
from infra.settings import Settings
from infra.telemetry import Telemetry
from infra.temporal.client import connect_when_ready, make_runtime
from infra.temporal.clock import clock_offset
from infra.temporal.errors import SetupError
from infra.temporal.home import Home, home_of
from infra.temporal.own_server import at_home
from workers.clock_watch import ClockWatch
from workers.queues import make_workers
from workflows.contracts.planning import TenantHints
from workflows.domain.zones import tzdata_version

CONNECT_WITHIN = timedelta(minutes=5)
MIGRATE_AGAIN = 5.0
WATCH_EVERY = 5.0
OTHER_FILES = 48
"""Open files beside the connections to targets: twenty, and twice as many while the database is busy."""
BROKEN_OFF_AFTER = timedelta(seconds=30)
"""Beyond the grace: what waits for a server that is away waits for good."""
RECORDS_AT_END = timedelta(seconds=3)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the activities of one process have in common."""

    settings: Settings
    client: Client
    home: Home | None
    database: Database
    recorder: RecordWriter
    sender: HttpSender
    clock: SystemClock
    offset: ServerOffset
    telemetry: Telemetry
    identity: str


async def run(settings: Settings, *, stop: asyncio.Event) -> int:
    """Serve both queues until ``stop`` is set, then give back what is held; the exit status."""
    try:
        client = await connect_when_ready(
            settings, within=CONNECT_WITHIN, alive=lambda: not stop.is_set(), runtime=make_runtime()
        )
    except (SetupError, RPCError):
        if stop.is_set():
            return 0
        raise
    home = home_of(client, settings)
    client = at_home(client, home)
    settings = _with_affordable_runs(settings, _allow_many_connections())
    async with _shared(settings, client, home) as shared:
        await _measure(shared.offset, client, shared.identity)
        attempts = _attempts(shared)
        return await _serve(_workers(shared, attempts), attempts, shared.home, settings.worker_grace, stop)


@asynccontextmanager
async def _shared(settings: Settings, client: Client, home: Home | None) -> AsyncIterator[Shared]:
    """Opened, with what goes on in the background beside the activities; closed at the end."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        database = Database.open(settings.database_url, durable=settings.durable)
        stack.push_async_callback(database.close)
        sender = HttpSender(
            allow_networks=settings.allow_networks,
            signing_secret=settings.signing_secret.get_secret_value(),
            user_agent=f"carillon/{version('carillon')}",
            now=clock.now,
        )
        stack.push_async_callback(sender.close)
        recorder = RecordWriter(database)
        recorder.start()
        stack.push_async_callback(recorder.close, RECORDS_AT_END)
        offset, telemetry = ServerOffset(clock), Telemetry.of(settings, "carillon-worker")
        clock_watch = ClockWatch(offset, socket.gethostname(), tell=partial(tell, client), now=clock.now)
        for work in (_migrate(database), _watch(recorder, telemetry), clock_watch.run()):
            stack.callback(asyncio.create_task(work).cancel)
        identity = f"{os.getpid()}@{socket.gethostname()}"
        yield Shared(settings, client, home, database, recorder, sender, clock, offset, telemetry, identity)


def _attempts(shared: Shared) -> Attempts:
    settings = shared.settings
    return Attempts(
        Places(
            sender=shared.sender,
            turnstile=Turnstile(settings.max_concurrent_runs),
            returns=ReturnRate(),
            fences=Fences(shared.clock),
            clock=shared.clock,
            offset=shared.offset,
            recorder=shared.recorder,
            telemetry=shared.telemetry,
            worker=shared.identity,
            hold_limit=settings.look_ahead,
            tzdata=tzdata_version(),
            callbacks=Callbacks.of(settings),
            tell_incident=partial(tell, shared.client),
            worker_commands=settings.worker_commands,
        )
    )


def _workers(shared: Shared, attempts: Attempts) -> tuple[Worker, Worker]:
    client, database, settings = shared.client, shared.database, shared.settings
    hints = TenantHints(look_ahead=settings.look_ahead)
    dead_letters = DeadLetters(database)
    return make_workers(
        client,
        settings,
        attempts=attempts,
        planning=Planning(lambda _: hints),
        records=Records(shared.recorder),
        identity=shared.identity,
        home=shared.home,
        letters=Letters(client, dead_letters),
        bulk=Bulk(
            client,
            JobIndex(database),
            dead_letters,
            AuditLog(database),
            pace=Pace(settings.bulk_rate),
            now=shared.clock.now,
        ),
        backfills=Backfills(History(database)),
        incidents=_incidents(shared),
    )


def _incidents(shared: Shared) -> Incidents:
    tenants = Tenants(shared.database)

    async def read(tenant: str) -> str | None:
        return (await tenants.read(tenant)).alert_url

    urls = AlertUrls(read, shared.settings.alert_url or None, shared.clock.elapsed)
    return Incidents(shared.sender, IncidentLog(shared.database), urls, shared.telemetry.incident_told)


async def _serve(
    workers: tuple[Worker, Worker],
    attempts: Attempts,
    home: Home | None,
    grace: timedelta,
    stop: asyncio.Event,
) -> int:
    """Until ``stop`` is set: 0 then, 1 if a worker ended before or the server is another's, be it while they
    stop: what is another's would be waited for."""
    serving = [asyncio.create_task(worker.run()) for worker in workers]
    stopping = asyncio.create_task(stop.wait())
    watching = [asyncio.create_task(home.watch())] if home is not None else []
    try:
        done, _ = await asyncio.wait({stopping, *watching, *serving}, return_when=asyncio.FIRST_COMPLETED)
        if foreign := done.intersection(watching):
            log.error("%s", foreign.pop().exception())
            return 1
        if stopping not in done:
            log.error("a worker ended by itself: %s", next(task.exception() for task in done))
            return 1
        log.info("stopping: %d runs are held or running", attempts.active)
        ending = asyncio.create_task(_end(workers, serving, attempts, grace))
        within = (grace + BROKEN_OFF_AFTER).total_seconds()
        done, _ = await asyncio.wait({ending, *watching}, return_when=asyncio.FIRST_COMPLETED, timeout=within)
        if foreign := done.intersection(watching):
            log.error("%s", foreign.pop().exception())
            return 1
        if not done:
            log.error("the worker did not stop within %g s, and is broken off", within)
            return 1
        ending.result()
        return 0
    finally:
        stopping.cancel()
        for watch in watching:
            watch.cancel()


async def _end(
    workers: tuple[Worker, Worker],
    serving: Sequence[asyncio.Task[None]],
    attempts: Attempts,
    grace: timedelta,
) -> None:
    """Gives back what is held, and returns once the workers have ended."""
    shutdowns = [asyncio.create_task(worker.shutdown()) for worker in workers]
    await attempts.stop(grace)
    await asyncio.gather(*shutdowns)
    await asyncio.gather(*serving)


def _allow_many_connections() -> int:
    """How many files may be open. A burst to many hosts keeps more connections for a second than the usual
    soft limit of 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _with_affordable_runs(settings: Settings, files: int) -> Settings:
    """No more runs at once than there can be connections: one that cannot be opened fails the attempt."""
    affordable = max(1, files - OTHER_FILES)
    if files == resource.RLIM_INFINITY or settings.max_concurrent_runs <= affordable:
        return settings
    log.warning(
        "this process may have no more than %d of %d files open for its targets: it fires %d runs at once "
        "instead of %d; raise its limit (ulimit -n), or lower CARILLON_MAX_CONCURRENT_RUNS",
        affordable,
        files,
        affordable,
        settings.max_concurrent_runs,
    )
    return settings.model_copy(update={"max_concurrent_runs": affordable})


async def _watch(recorder: RecordWriter, telemetry: Telemetry) -> None:
    """What the record writer says of itself, every few seconds."""
    dropped = 0
    while True:
        telemetry.records_waiting(recorder.queued)
        telemetry.records_dropped(recorder.counts.dropped - dropped)
        dropped = recorder.counts.dropped
        await asyncio.sleep(WATCH_EVERY)


async def _measure(offset: ServerOffset, client: Client, identity: str) -> None:
    """A first bound, so that a worker that starts into a burst does not take its delay for an offset."""
    try:
        found = await clock_offset(client, identity)
    except RPCError as error:
        log.warning("the clock's offset to the server is learned from starts: %s", error)
        return
    if found is not None:
        offset.measured(found.ahead + found.uncertainty / 2)


async def _migrate(database: Database) -> None:
    """Whoever comes first brings the schema up to date; no run waits for it."""
    while True:
        try:
            await database.migrate()
        except DatabaseError as error:
            log.warning("the database cannot be migrated yet: %s", error)
            await asyncio.sleep(MIGRATE_AGAIN)
        else:
            return
