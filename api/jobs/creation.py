"""Creating a job: reserve its place, start its workflow, activate the row.

Each step may be repeated: the same request finds the reservation of an earlier, unfinished one and
carries it on, and a workflow that is already started under this ref is the one we wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.client import Client
from temporalio.common import (
    Priority,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from api.connection import Connection
from api.jobs.reading import row_of_view
from api.jobs.refs import Refs
from api.jobs.tombstones import bury
from api.problem_table import LATER
from api.problems import Kind, ProblemError
from api.request_id import current_request_id
from infra.database.admission import Draft, Reservation
from infra.database.errors import DatabaseError, JobExists, ReservationRefused
from infra.database.jobs import JobIndex
from infra.database.stored_job import StoredJob
from infra.settings import Settings
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import JobState, JobView
from workflows.contracts.names import (
    JOB_WORKFLOW,
    MAIN_QUEUE,
    job_workflow_id,
)
from workflows.contracts.planning import TenantHints
from workflows.contracts.records import Pause
from workflows.contracts.search import attributes
from workflows.domain.resolve import initial_cursor

log = logging.getLogger(__name__)

START_WITHIN = timedelta(seconds=8)
STARTS_AT_ONCE = 16
_DETAIL_MAX = 2000
_NOTHING_STARTED = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.FAILED_PRECONDITION,
    }
)
"""After every other failure the workflow may have been started all the same."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A creation asked for, its definition settled."""

    tenant: str
    job: str
    definition: JobDefinition
    paused: bool
    fingerprint: str
    key: str | None
    by: str
    accepted: datetime


class Creation:
    def __init__(self, index: JobIndex, refs: Refs, settings: Settings) -> None:
        self._index = index
        self._refs = refs
        self._settings = settings

    async def create(self, connection: Connection, new: NewJob) -> Reservation:
        """The job's row; its kind says whether it is new, or a replay of a request that is done.

        Raises what the index refuses with, and 503 when Temporal does not take the job.
        """
        [made] = await self.create_all(connection, [new])
        if isinstance(made, Exception):
            raise made
        return made

    async def create_all(
        self, connection: Connection, news: Sequence[NewJob]
    ) -> list[Reservation | ReservationRefused | ProblemError]:
        """:meth:`create` for many of one tenant: one transaction before the starts, and one after."""
        client = await connection.client()
        reserved = await self._reserve(news)
        in_the_way = [one for one in reserved if isinstance(one, JobExists)]
        if await bury(connection, self._index, news[0].tenant, in_the_way, news[0].accepted):
            reserved = await self._reserve(news)
        starts = asyncio.Semaphore(STARTS_AT_ONCE)
        silent = asyncio.Event()

        async def start(new: NewJob, reservation: Reservation) -> JobState | ProblemError:
            state = initial_state(reservation.job, paused=new.paused)
            async with starts:
                if silent.is_set():  # the others did not wait for an answer in vain
                    return _not_started("Temporal does not answer; send the same request again.")
                try:
                    await self._start(client, state, reservation)
                except ProblemError as problem:
                    silent.set()
                    return problem
            return state

        pending = {
            place: asyncio.create_task(start(new, reservation))
            for place, (new, reservation) in enumerate(zip(news, reserved, strict=True))
            if isinstance(reservation, Reservation) and reservation.kind != "replay"
        }
        results: list[Reservation | ReservationRefused | ProblemError] = [_if_there(one) for one in reserved]
        begun: dict[int, JobState] = {}
        for place, task in pending.items():
            outcome = await task
            if isinstance(outcome, JobState):
                begun[place] = outcome
            else:
                results[place] = outcome
        for place, problem in (await self._activate(client, begun)).items():
            results[place] = problem
        return results

    async def _reserve(self, news: Sequence[NewJob]) -> list[Reservation | ReservationRefused]:
        return await self._index.reserve_all(
            news[0].tenant,
            [self._draft(new) for new in news],
            max_jobs=self._settings.max_jobs,
            create_rate=self._settings.create_rate,
            now=news[0].accepted,
        )

    def _draft(self, new: NewJob) -> Draft:
        return self._index.draft(
            new.tenant,
            new.job,
            new.definition,
            fingerprint=new.fingerprint,
            idempotency_key=new.key,
            created_by=new.by,
            request_id=current_request_id(),
        )

    async def _activate(self, client: Client, begun: dict[int, JobState]) -> dict[int, ProblemError]:
        """Makes jobs of the reservations; those that had been given up meanwhile are undone."""
        if not begun:
            return {}
        tenant = next(iter(begun.values())).tenant
        rows = [row_of_view(tenant, initial_view(state), state.cursor) for state in begun.values()]
        activated = await self._index.activate_all(tenant, rows)
        undone: dict[int, ProblemError] = {}
        for (place, state), activation in zip(begun.items(), activated, strict=True):
            if activation == "active":
                self._refs.remember(tenant, state.job, state.ref)
                continue
            await self._undo(client, state)
            undone[place] = _not_started(
                "The reservation of this job had been given up; nothing was created."
            )
        return undone

    async def _start(self, client: Client, state: JobState, reservation: Reservation) -> None:
        try:
            async with asyncio.timeout(START_WITHIN.total_seconds()):
                await start_job(client, state)
        except (RPCError, TimeoutError) as error:
            nothing = isinstance(error, RPCError) and error.status in _NOTHING_STARTED
            if nothing and reservation.kind == "new":
                await self._release(state)
                raise _not_started("Temporal did not take the job; nothing was created.") from error
            raise _not_started(
                "Temporal does not answer; the job may have been created. Send the same request again "
                "(same id or same Idempotency-Key): it carries this one on."
            ) from error

    async def _release(self, state: JobState) -> None:
        try:
            await self._index.release(state.tenant, state.ref, now=state.created_at)
        except DatabaseError as error:
            log.warning("reservation of %s/%s is left to the sweeper: %s", state.tenant, state.ref, error)

    async def _undo(self, client: Client, state: JobState) -> None:
        """A start that came after its reservation had been given up: it must not run."""
        handle = client.get_workflow_handle(job_workflow_id(state.tenant, state.ref))
        await handle.terminate(reason="its reservation had been given up before it was started")


def initial_state(reserved: StoredJob, *, paused: bool) -> JobState:
    """The workflow's input, made from the reservation, so that whoever carries it on starts the same."""
    accepted = reserved.created_at
    return JobState(
        tenant=reserved.tenant,
        job=reserved.job,
        ref=reserved.ref,
        generation=reserved.generation,
        definition=reserved.definition,
        revision=reserved.revision,
        created_at=accepted,
        created_by=reserved.created_by,
        updated_at=accepted,
        cursor=initial_cursor(reserved.definition.schedule, accepted),
        pause=Pause(since=accepted, reason="created paused", by=reserved.created_by) if paused else None,
        runs_errands=True,
        minds_beside=True,
        keeps_overdue=True,
        stops_unsure=True,
        keeps_line=True,
        as_of_0_4=True,
    )


def initial_view(state: JobState) -> JobView:
    """The job as its workflow will know it; asking it would make a creation wait for a worker."""
    return JobView(
        job=state.job,
        ref=state.ref,
        generation=state.generation,
        definition=state.definition,
        status="paused" if state.pause else "active",
        revision=state.revision,
        change=state.change,
        created_at=state.created_at,
        updated_at=state.updated_at,
        pause=state.pause,
        cursor=state.cursor,
    )


async def start_job(client: Client, state: JobState) -> None:
    """Starts the job's workflow; one that is started already is the same job, and fine."""
    hints = TenantHints()
    try:
        await client.start_workflow(
            JOB_WORKFLOW,
            state,
            id=job_workflow_id(state.tenant, state.ref),
            task_queue=MAIN_QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            search_attributes=attributes(state.tenant, state.job, state.ref),
            static_summary=f"{state.job} of {state.tenant}",
            static_details=_details(state),
            priority=Priority(fairness_key=state.tenant, fairness_weight=hints.weight, priority_key=3),
            rpc_timeout=START_WITHIN,
        )
    except WorkflowAlreadyStartedError:
        log.info("job %s/%s is started already", state.tenant, state.ref)


def _details(state: JobState) -> str:
    target = state.definition.target
    schedule = state.definition.schedule.model_dump_json(by_alias=True, exclude_none=True)
    lines = [
        f"Job `{state.job}` of tenant `{state.tenant}`, generation {state.generation}.",
        f"Schedule when it was created: `{schedule}`",
        f"Target then: `{target.method} {target.url.partition('?')[0]}`",
    ]
    if state.definition.description:
        lines.insert(1, state.definition.description)
    return "\n\n".join(line[:_DETAIL_MAX] for line in lines)


def _if_there(
    reserved: Reservation | ReservationRefused,
) -> Reservation | ReservationRefused | ProblemError:
    """A replay of a creation whose job has been deleted since has no job to show."""
    if isinstance(reserved, Reservation) and reserved.job.status == "deleted":
        return ProblemError(
            Kind.GONE,
            f"This request created the job `{reserved.job.job}`, which has been deleted since; "
            "use a new Idempotency-Key to create another.",
        )
    return reserved


def _not_started(detail: str) -> ProblemError:
    return ProblemError(Kind.SCHEDULER_UNAVAILABLE, detail, headers=LATER)
