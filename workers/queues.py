"""The Temporal workers of one process.

One serves workflows and the attempts that are held, with plenty of places; the other serves attempts
that are due now, with as many places as the process fires at once, so that a backlog stays in the
server's fair queue where other workers can take it.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.attempt import Attempts
from activities.backfill import Backfills
from activities.bulk import Bulk
from activities.dead_letters import Letters
from activities.errands import Errands
from activities.groups import Groups
from activities.incidents import Incidents
from activities.planning import Planning
from activities.records import Records
from activities.starting import Starting
from infra.settings import Settings
from infra.temporal.home import Home
from workers.at_home import AtHome
from workers.replayable import ReplayableRunner
from workflows.bulk import BulkWorkflow
from workflows.bulk_admission import BulksWorkflow
from workflows.contracts.names import DUE_QUEUE, MAIN_QUEUE
from workflows.dead_letter import DeadLetterWorkflow
from workflows.group import GroupWorkflow
from workflows.incident import IncidentWorkflow
from workflows.job import JobWorkflow
from workflows.run import RunWorkflow

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""Else a beat each 20 s of a minute's lease is sent after 48 s."""
STICKY_TIMEOUT = timedelta(seconds=2)
"""A dead worker's cached jobs wait this long for it."""
SHUTDOWN_MARGIN = timedelta(seconds=5)
"""Beyond our own grace, for results to reach the server."""

WORKFLOWS = (
    JobWorkflow, RunWorkflow, BulkWorkflow, BulksWorkflow, DeadLetterWorkflow, IncidentWorkflow,
    GroupWorkflow,
)  # fmt: skip


def workflow_runner() -> ReplayableRunner:
    """The sandbox, with what is pure passed through: it costs memory for every cached job otherwise."""
    return ReplayableRunner(
        SandboxedWorkflowRunner(
            restrictions=SandboxRestrictions.default.with_passthrough_modules(
                "pydantic", "pydantic_core", "annotated_types", "workflows.contracts", "workflows.domain"
            )
        )
    )


def make_workers(
    client: Client,
    settings: Settings,
    *,
    attempts: Attempts,
    planning: Planning,
    records: Records,
    identity: str,
    home: Home | None = None,
    bulk: Bulk | None = None,
    incidents: Incidents | None = None,
    letters: Letters | None = None,
    backfills: Backfills | None = None,
) -> tuple[Worker, Worker]:
    """The worker of workflows and held attempts, and the worker of attempts due now.

    Without ``home`` whatever the server gives is taken for ours. Without ``bulk`` the actions on many jobs
    wait for a worker that has it, without ``incidents`` the messages on incidents; without ``letters`` dead
    letters are not listed, and without ``backfills`` backfills wait as well.
    """
    grace = settings.worker_grace + SHUTDOWN_MARGIN
    starting = Starting(client)
    groups = Groups(client)
    interceptors = [AtHome(home)] if home is not None else []
    runner = workflow_runner()
    main = Worker(
        client,
        task_queue=MAIN_QUEUE,
        workflows=WORKFLOWS,
        activities=[
            attempts.attempt,
            planning.plan,
            records.flush,
            starting.start_run,
            starting.runs_alive,
            Errands(client).run,
            *(letters or Letters(client, None)).activities,
            groups.ask,
            groups.ask_holders,
            *(bulk.activities if bulk is not None else ()),
            *((backfills.page,) if backfills is not None else ()),
            *(incidents.activities if incidents is not None else ()),
        ],
        workflow_runner=runner,
        interceptors=interceptors,
        identity=identity,
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_activities=settings.max_held_runs,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=grace,
    )
    runner.serve(main)
    due = Worker(
        client,
        task_queue=DUE_QUEUE,
        activities=[attempts.attempt],
        interceptors=interceptors,
        identity=identity,
        max_concurrent_activities=settings.max_concurrent_runs,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=grace,
    )
    return main, due
