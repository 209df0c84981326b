"""A worker inside the test's process: the real queues, activities and HTTP, with records kept in memory."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.alert_urls import AlertUrls
from activities.attempt import Attempts, Places, ReturnRate
from activities.backfill import Backfills
from activities.callback import Callbacks
from activities.clock import Clock, ServerOffset, SystemClock
from activities.fence import Fences
from activities.incidents import Incidents, tell
from activities.planning import Planning
from activities.records import Records
from activities.targets.http import HttpSender
from activities.turnstile import Turnstile
from infra.database.errors import DatabaseUnavailable
from infra.database.executions import ToldOutcome
from infra.settings import Settings
from infra.telemetry import Telemetry
from workers.queues import make_workers
from workflows.contracts import names
from workflows.contracts.actor import Actor
from workflows.contracts.definition import JobDefinition
from workflows.contracts.incident import Incident
from workflows.contracts.job import JobState, JobView
from workflows.contracts.planning import TenantHints
from workflows.contracts.records import ExecutionRow, Record
from workflows.domain import resolve
from workflows.domain.zones import tzdata_version

TENANT = "acme"


@dataclass
class MemoryRecorder:
    """Takes every record, or none while it is ``away``."""

    records: list[Record] = field(default_factory=list)
    away: bool = False

    async def store(self, records: Sequence[Record], wait: timedelta) -> bool:
        if self.away:
            return False
        self.records.extend(records)
        return True

    def offer(self, records: Sequence[Record]) -> None:
        if not self.away:
            self.records.extend(records)

    def executions(self, ref: str) -> dict[str, ExecutionRow]:
        """The newest row of each execution of a job, in the order of their first mention."""
        rows: dict[str, ExecutionRow] = {}
        for record in self.records:
            row = record.execution
            if row is not None and record.ref == ref:
                kept = rows.get(row.key)
                if kept is None or row.seq >= kept.seq:
                    rows[row.key] = row
        return rows

    async def outcomes(
        self, tenant: str, ref: str, first: datetime, last: datetime, *, succeeded: bool = False
    ) -> list[ToldOutcome]:
        """As the history tells it to a backfill."""
        if self.away:
            raise DatabaseUnavailable("away")
        return [
            ToldOutcome(row.key, row.outcome, row.seq)
            for row in self.executions(ref).values()
            if first <= row.scheduled_time <= last and row.trigger != "manual"
        ]


@dataclass
class MemoryIncidents:
    """The rows of incidents; ``away`` as a database may be."""

    rows: dict[str, Incident] = field(default_factory=dict)
    away: bool = False
    others: int = 0
    """Further incidents that are open."""

    async def store(self, rows: Sequence[Incident]) -> None:
        if self.away:
            raise DatabaseUnavailable("away")
        for row in rows:
            known = self.rows.get(row.id)
            if known is None or known.change < row.change:
                self.rows[row.id] = row

    async def found(self, incident: Incident) -> tuple[Incident, int]:
        await self.store([incident])
        return self.rows[incident.id], self.others

    def of(self, subject: str) -> list[Incident]:
        return [row for row in self.rows.values() if row.subject == subject]


@dataclass
class Fleet:
    client: Client
    settings: Settings
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)
    incidents: MemoryIncidents = field(default_factory=MemoryIncidents)
    clock: Clock = field(default_factory=SystemClock)
    attempts: Attempts | None = None
    _workers: tuple[Worker, ...] = ()
    _running: list[asyncio.Task[None]] = field(default_factory=list)
    _sender: HttpSender | None = None
    jobs: list[WorkflowHandle[Any, Any]] = field(default_factory=list)

    async def start(self) -> Self:
        self._sender = HttpSender(
            allow_networks=self.settings.allow_networks,
            signing_secret=self.settings.signing_secret.get_secret_value(),
            user_agent="carillon-tests",
            now=self.clock.now,
        )
        places = Places(
            sender=self._sender,
            turnstile=Turnstile(self.settings.max_concurrent_runs),
            returns=ReturnRate(),
            fences=Fences(self.clock),
            clock=self.clock,
            offset=ServerOffset(self.clock),
            recorder=self.recorder,
            telemetry=Telemetry(),
            worker="test-worker",
            hold_limit=self.settings.look_ahead,
            tzdata=tzdata_version(),
            callbacks=Callbacks.of(self.settings),
            tell_incident=partial(tell, self.client),
            worker_commands=self.settings.worker_commands,
        )
        self.attempts = Attempts(places)
        hints = TenantHints(look_ahead=self.settings.look_ahead)
        self._workers = make_workers(
            self.client,
            self.settings,
            attempts=self.attempts,
            planning=Planning(lambda _: hints),
            records=Records(self.recorder),
            identity="test-worker",
            incidents=self._incident_activities(self._sender),
            backfills=Backfills(self.recorder),
        )
        self._running = [asyncio.create_task(worker.run()) for worker in self._workers]
        return self

    def _incident_activities(self, sender: HttpSender) -> Incidents:
        async def alert_url(tenant: str) -> str | None:
            return None

        urls = AlertUrls(alert_url, self.settings.alert_url or None, self.clock.elapsed)
        return Incidents(sender, self.incidents, urls, Telemetry().incident_told)

    async def stop_workers(self, grace: timedelta = timedelta(0)) -> None:
        """Its jobs go on as soon as it is started again."""
        shutdowns = [asyncio.create_task(worker.shutdown()) for worker in self._workers]
        if self.attempts is not None:
            await self.attempts.stop(grace)
        await asyncio.gather(*shutdowns, *self._running)
        if self._sender is not None:
            await self._sender.close()

    async def stop(self, grace: timedelta = timedelta(0)) -> None:
        await self.stop_workers(grace)
        for job in self.jobs:
            with suppress(RPCError):
                await job.terminate("the test is over")

    async def restarted(self, *, after: float = 0, **changes: Any) -> Self:
        """The same fleet with other settings, away for so many seconds."""
        jobs, self.jobs = self.jobs, []
        await self.stop()
        await asyncio.sleep(after)
        self.jobs, self.settings = jobs, self.settings.model_copy(update=changes)
        return await self.start()

    def with_settings(self, **changes: Any) -> Fleet:
        return dataclasses.replace(self, settings=self.settings.model_copy(update=changes))

    async def create(
        self, job: str, definition: dict[str, Any], *, cursor: datetime | None = None, **state_fields: Any
    ) -> WorkflowHandle[Any, Any]:
        """Start a job as the API does, or with a past: ``state_fields`` are what became of it."""
        now = datetime.now(UTC)
        parsed = JobDefinition.model_validate(definition)
        accepted = cursor or now
        schedule = resolve.resolve(
            parsed.schedule, now=accepted, default_timezone="UTC", tenant=TENANT, job=job
        )
        state = JobState(
            tenant=TENANT,
            job=job,
            ref=job,
            definition=parsed.model_copy(update={"schedule": schedule}),
            created_at=now,
            updated_at=now,
            cursor=accepted,
            runs_errands=True,
            minds_beside=True,
            keeps_overdue=True,
            stops_unsure=True,
            keeps_line=True,
            as_of_0_4=True,
            **state_fields,
        )
        handle: WorkflowHandle[Any, Any] = await self.client.start_workflow(
            names.JOB_WORKFLOW,
            state,
            id=names.job_workflow_id(TENANT, job),
            task_queue=names.MAIN_QUEUE,
        )
        self.jobs.append(handle)
        return handle


def actor(by: str = "tester") -> Actor:
    return Actor(by=by, at=datetime.now(UTC))


def fresh(name: str) -> str:
    """A job id that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


async def view(job: WorkflowHandle[Any, Any]) -> JobView:
    return await job.query(names.QUERY_VIEW, result_type=JobView)
