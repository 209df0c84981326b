"""What a bulk does outside of its workflow: reads the index, sends the updates, tells the audit log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities import lost_jobs
from infra.database.audit import AuditEntry, AuditLog
from infra.database.dead_letters import DeadLetters
from infra.database.job_list import JobFilter
from infra.database.jobs import JobIndex
from workflows.contracts import failures, names
from workflows.contracts.actor import Actor
from workflows.contracts.bulk import (
    SAMPLE,
    BulkCount,
    BulkJob,
    BulkNotes,
    BulkOrder,
    BulkOutcome,
    BulkPage,
    BulkPageAsked,
    BulkStep,
)
from workflows.contracts.dead_letter import LetterRedriven, RedriveLetter
from workflows.contracts.job import (
    DeleteRequest,
    JobChanged,
    PauseRequest,
    ResumeRequest,
    Triggered,
    TriggerRequest,
)

PAGE = 100
AT_ONCE = 8
"""Jobs of one bulk that are asked at the same time."""
ANSWER_WITHIN_S = 8.0
TRIES = 3
TRY_AGAIN_S = 0.5
BEAT_EVERY_S = 2.0
HEALTHY_WITHIN = timedelta(seconds=2)

log = logging.getLogger(__name__)


class Pace:
    """One turn each ``1 / rate`` seconds, for all that share it."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate
        self._next = 0.0

    async def turn(self) -> None:
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._gap
        await asyncio.sleep(at - now)


class Bulk:
    """``pace`` is that of the whole process, whatever number of bulks it serves."""

    def __init__(
        self,
        client: Client,
        index: JobIndex,
        letters: DeadLetters,
        audit: AuditLog,
        *,
        pace: Pace,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._index = index
        self._letters = letters
        self._audit = audit
        self._pace = pace
        self._now = now

    @property
    def activities(self) -> tuple[Callable[..., Awaitable[Any]], ...]:
        return (self.count, self.page, self.apply, self.note)

    @activity.defn(name=names.BULK_COUNT_ACTIVITY)
    async def count(self, order: BulkOrder) -> BulkCount:
        """Raises DatabaseUnavailable, as :meth:`page` and :meth:`note` do: the workflow tries again."""
        if order.action == "redrive":
            wanted = _letters_of(order)
            letters = await self._letters.list(order.tenant, **wanted, limit=SAMPLE)
            return BulkCount(
                matched=await self._letters.count(order.tenant, **wanted),
                sample=[names.opaque_id(letter.key) for letter in letters.items],
            )
        filters = _filter_of(order)
        matched = await self._index.count(order.tenant, filters)
        first = await self._index.page(order.tenant, filters, limit=SAMPLE)
        return BulkCount(matched=matched, sample=[stored.job for stored in first.items])

    @activity.defn(name=names.BULK_PAGE_ACTIVITY)
    async def page(self, asked: BulkPageAsked) -> BulkPage:
        order = asked.order
        if order.action == "redrive":
            letters = await self._letters.list(
                order.tenant, **_letters_of(order), limit=PAGE, cursor=asked.cursor
            )
            return BulkPage(
                jobs=[BulkJob(job=one.job, ref=one.ref, key=one.key) for one in letters.items],
                next_cursor=letters.next_cursor,
            )
        found = await self._index.page(order.tenant, _filter_of(order), limit=PAGE, cursor=asked.cursor)
        jobs = [BulkJob(job=stored.job, ref=stored.ref) for stored in found.items]
        return BulkPage(jobs=jobs, next_cursor=found.next_cursor)

    @activity.defn(name=names.BULK_NOTE_ACTIVITY)
    async def note(self, notes: BulkNotes) -> None:
        """One entry a job that was changed; told twice, it is one entry still."""
        order = notes.order
        await self._audit.write(
            [
                AuditEntry(
                    tenant=order.tenant,
                    id=f"bulk-{order.id}-{outcome.key or outcome.ref}",
                    at=outcome.at,
                    by=order.actor.by,
                    operation=order.action,
                    job=outcome.job,
                    from_revision=outcome.revision,
                    to_revision=None if order.action == "delete" else outcome.revision,
                    request_id=order.request_id,
                )
                for outcome in notes.outcomes
                if outcome.kind is None
            ]
        )

    @activity.defn(name=names.BULK_APPLY_ACTIVITY)
    async def apply(self, step: BulkStep) -> list[BulkOutcome]:
        """An outcome for each job, in any order; for some only when the worker is stopped meanwhile.

        Then the jobs of this worker do not answer any more either, so those asked are asked again.
        """
        outcomes: list[BulkOutcome] = []
        async with _beating():
            work = asyncio.create_task(self._apply_all(step, outcomes))
            stopping = asyncio.create_task(activity.wait_for_worker_shutdown())
            try:
                await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            finally:
                stopping.cancel()
                work.cancel()
                await asyncio.gather(work, stopping, return_exceptions=True)
        return outcomes

    async def _apply_all(self, step: BulkStep, outcomes: list[BulkOutcome]) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(job: BulkJob) -> None:
            try:
                outcomes.append(await self._apply(step.order, job))
            finally:
                places.release()

        try:
            async with asyncio.TaskGroup() as group:
                for job in step.jobs:
                    await places.acquire()
                    await self._pace.turn()
                    group.create_task(one(job))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _apply(self, order: BulkOrder, job: BulkJob) -> BulkOutcome:
        """Ask until the job has a word for it. Raises what is no fault of the job's: all is done again."""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(TRY_AGAIN_S * attempt)
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    revision = await self._send(order, job)
                return self._outcome(job, revision=revision)
            except WorkflowUpdateFailedError as error:
                cause = error.cause
                refused = cause.type if isinstance(cause, ApplicationError) else None
                if refused == failures.JOB_DELETED:
                    return self._deleted(order, job)
                if isinstance(cause, ApplicationError) and refused in _REFUSALS:
                    return self._outcome(job, kind=refused, message=cause.message)
                # else it met the job's continuing as new, and is asked again
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return await self._gone(order, job)
                if error.status not in _OF_THE_JOB:
                    raise
            except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError from None
                await self._client.service_client.check_health(timeout=HEALTHY_WITHIN)
        return self._outcome(job, kind=failures.NO_ANSWER, message="the job did not answer")

    async def _send(self, order: BulkOrder, job: BulkJob) -> int:
        """The job's revision. Update and operation are named by the bulk, so a repeat is only answered."""
        name = f"bulk-{order.id}"
        if order.action == "redrive":
            return await self._redrive(order, job, name)
        handle = self._client.get_workflow_handle(names.job_workflow_id(order.tenant, job.ref))
        actor = Actor(by=order.actor.by, at=self._now(), operation=name)
        if order.action == "trigger":
            triggered: Triggered = await handle.execute_update(
                names.UPDATE_TRIGGER,
                TriggerRequest(request=name, actor=actor),
                id=f"trigger-{name}",
                result_type=Triggered,
            )
            return triggered.execution.revision
        update, request = {
            "pause": (names.UPDATE_PAUSE, PauseRequest(reason=f"bulk {order.id}", actor=actor)),
            "resume": (names.UPDATE_RESUME, ResumeRequest(actor=actor)),
            "delete": (names.UPDATE_DELETE, DeleteRequest(actor=actor)),
        }[order.action]
        changed: JobChanged = await handle.execute_update(
            update, request, id=f"{update}-{name}", result_type=JobChanged
        )
        return changed.view.revision

    async def _redrive(self, order: BulkOrder, job: BulkJob, name: str) -> int:
        letter = self._client.get_workflow_handle(names.dead_letter_workflow_id(job.key))
        request = RedriveLetter(actor=Actor(by=order.actor.by, at=self._now(), operation=name))
        redriven: LetterRedriven = await letter.execute_update(
            names.UPDATE_REDRIVE, request, id=f"redrive-{name}", result_type=LetterRedriven
        )
        return redriven.revision

    async def _gone(self, order: BulkOrder, job: BulkJob) -> BulkOutcome:
        """Its workflow has ended: the job was deleted, or is lost, and then its row can be deleted still.

        Raises DatabaseError when the database is away.
        """
        if order.action == "redrive":
            return self._deleted(order, job)
        ended = await lost_jobs.was_ended(self._client, order.tenant, job.ref)
        stored = None if ended is False else await self._index.by_ref(order.tenant, job.ref)
        if stored is None or not stored.is_present:
            return self._deleted(order, job)
        if order.action != "delete":
            return self._outcome(job, kind=failures.JOB_LOST, message="its workflow was ended from outside")
        await lost_jobs.bury(self._client, self._index, stored, self._now())
        return self._outcome(job, revision=stored.revision)

    def _deleted(self, order: BulkOrder, job: BulkJob) -> BulkOutcome:
        """By an earlier try, or by somebody else: to a deletion it is all the same."""
        if order.action == "redrive":
            return self._outcome(job, kind=failures.LETTER_CLOSED, message="closed meanwhile")
        if order.action == "delete":
            return self._outcome(job)
        return self._outcome(job, kind=failures.JOB_DELETED, message="the job has been deleted meanwhile")

    def _outcome(self, job: BulkJob, **fields: Any) -> BulkOutcome:
        return BulkOutcome(job=job.job, ref=job.ref, key=job.key, at=self._now(), **fields)


_OF_THE_JOB = frozenset({RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION})
"""It has too many updates in flight, or its workflow cannot go on: no reason to hold up the others."""
_REFUSALS = frozenset({failures.RUN_ACTIVE, failures.TOO_MANY_TRIGGERS, failures.LETTER_CLOSED})
"""What a job, or a dead letter, refuses an action with; asking again would change nothing."""


def _filter_of(order: BulkOrder) -> JobFilter:
    asked = order.filter
    return JobFilter(
        status=asked.status or None,
        labels=asked.labels,
        target=asked.target,
        outcome=asked.outcome or None,
        q=asked.q,
        created_until=order.actor.at,
    )


def _letters_of(order: BulkOrder) -> dict[str, Any]:
    asked = order.letters
    return {
        "job": asked.job,
        "since": asked.since,
        "until": asked.until,
        "opened_until": order.actor.at,
    }


@contextlib.asynccontextmanager
async def _beating() -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(BEAT_EVERY_S)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
