"""Composition root of the worker process."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from temporalio.client import Client
from temporalio.service import RPCError

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
from workers.clock_watch import ClockWatch
from workers.queues import make_workers
from workflows.contracts.planning import TenantHints
from workflows.domain.zones import tzdata_version

CONNECT_WITHIN = timedelta(minutes=5)
MIGRATE_AGAIN = 5.0
WATCH_EVERY = 5.0
RECORDS_AT_END = timedelta(seconds=3)

log = logging.getLogger(__name__)


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
    _allow_many_connections()
    clock = SystemClock()
    database = Database.open(settings.database_url, durable=settings.durable)
    recorder = RecordWriter(database)
    recorder.start()
    migration = asyncio.create_task(_migrate(database))
    sender = HttpSender(
        allow_networks=settings.allow_networks,
        signing_secret=settings.signing_secret.get_secret_value(),
        user_agent=f"carillon/{version('carillon')}",
        now=clock.now,
    )
    offset = ServerOffset(clock)
    identity = f"{os.getpid()}@{socket.gethostname()}"
    await _measure(offset, client, identity)
    telemetry = Telemetry.of(settings, "carillon-worker")
    attempts = Attempts(
        Places(
            sender=sender,
            turnstile=Turnstile(settings.max_concurrent_runs),
            returns=ReturnRate(),
            fences=Fences(clock),
            clock=clock,
            offset=offset,
            recorder=recorder,
            telemetry=telemetry,
            worker=identity,
            hold_limit=settings.look_ahead,
            tzdata=tzdata_version(),
            callbacks=Callbacks.of(settings),
            tell_incident=partial(tell, client),
            worker_commands=settings.worker_commands,
        )
    )
    hints = TenantHints(look_ahead=settings.look_ahead)
    dead_letters = DeadLetters(database)
    workers = make_workers(
        client,
        settings,
        attempts=attempts,
        planning=Planning(lambda _: hints),
        records=Records(recorder),
        identity=identity,
        letters=Letters(client, dead_letters),
        bulk=Bulk(
            client,
            JobIndex(database),
            dead_letters,
            AuditLog(database),
            pace=Pace(settings.bulk_rate),
            now=clock.now,
        ),
        backfills=Backfills(History(database)),
        incidents=_incidents(settings, sender, database, clock, telemetry),
    )
    serving = [asyncio.create_task(worker.run()) for worker in workers]
    watching = asyncio.create_task(_watch(recorder, telemetry))
    clock_watch = ClockWatch(offset, socket.gethostname(), tell=partial(tell, client), now=clock.now)
    watching_clock = asyncio.create_task(clock_watch.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *serving}, return_when=asyncio.FIRST_COMPLETED)
        if stopping not in done:
            log.error("a worker ended by itself: %s", next(task.exception() for task in done))
            return 1
        log.info("stopping: %d runs are held or running", attempts.active)
        shutdowns = [asyncio.create_task(worker.shutdown()) for worker in workers]
        await attempts.stop(settings.worker_grace)
        await asyncio.gather(*shutdowns)
        await asyncio.gather(*serving)
        return 0
    finally:
        stopping.cancel()
        migration.cancel()
        watching.cancel()
        watching_clock.cancel()
        await recorder.close(RECORDS_AT_END)
        await sender.close()
        await database.close()


def _incidents(
    settings: Settings, sender: HttpSender, database: Database, clock: SystemClock, telemetry: Telemetry
) -> Incidents:
    tenants = Tenants(database)

    async def read(tenant: str) -> str | None:
        return (await tenants.read(tenant)).alert_url

    urls = AlertUrls(read, settings.alert_url or None, clock.elapsed)
    return Incidents(sender, IncidentLog(database), urls, telemetry.incident_told)


def _allow_many_connections() -> None:
    """A burst to many hosts keeps more connections for a second than the usual soft limit of 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
