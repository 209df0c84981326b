"""Concurrency groups: the limit is asked of the group itself, members come from the index of jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pydantic import Field
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, QueryRejectCondition, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.groups import GroupUnread, left_by
from api.connection import Connection
from api.jobs.answers import Answer
from api.problem_table import LATER
from api.problems import Kind, ProblemError
from infra.database.errors import DatabaseUnavailable
from infra.database.groups import GroupIndex, StoredGroup
from infra.temporal.errors import SetupError
from workflows.contracts.actor import Actor
from workflows.contracts.base import Instant
from workflows.contracts.group import GroupHolder, GroupLimit, GroupState, GroupView, GroupWaiting
from workflows.contracts.names import (
    GROUP_WORKFLOW,
    MAIN_QUEUE,
    QUERY_VIEW,
    UPDATE_DELETE,
    UPDATE_LIMIT,
    group_workflow_id,
    job_of,
    opaque_id,
    parse_key,
)
from workflows.contracts.search import attributes

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 7.4
VIEW_WITHIN = timedelta(seconds=2)
MEMBERS_SHOWN = 100
GROUPS_MAX = 1_000
"""Groups of a tenant that have a limit; those that only jobs name are bounded by the jobs."""


class GroupPlaceAnswer(Answer):
    """A run that has a place in the group, or waits for one."""

    id: str = Field(description="The id of the execution.")
    key: str
    job: str
    since: Instant = Field(description="Since when it has its place, or waits for it.")


class GroupListed(Answer):
    name: str
    limit: int = Field(description="Runs that may hold a place at once.")
    member_count: int = Field(description="Jobs that name the group.")


class GroupPage(Answer):
    items: list[GroupListed]
    next_cursor: str | None


class GroupAnswer(GroupListed):
    """A concurrency group: its jobs, the runs that have a place, and those that wait for one."""

    members: list[str] = Field(description=f"The first {MEMBERS_SHOWN} jobs, by id.")
    holders: list[GroupPlaceAnswer] | None = Field(description="The first 100; null: nobody answered.")
    held: int | None = Field(description="How many have a place.")
    waiting: list[GroupPlaceAnswer] | None = Field(description="The first 100, the next one first.")
    queued: int | None = Field(description="How many wait.")
    stale: bool = Field(
        default=False, description="True: the group did not answer; the limit is the index's last word."
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """``answered``: the group said something, be it that it is not there (``view`` None)."""

    view: GroupView | None
    answered: bool


class Groups:
    def __init__(self, connection: Connection, index: GroupIndex) -> None:
        self._connection = connection
        self.index = index

    async def read(self, tenant: str, name: str) -> GroupAnswer:
        """Raises 404 when no job names it, nobody gave it a limit, and no run holds a place in it."""
        asked = await self._view(tenant, name)
        stored = await self.index.get(tenant, name)
        if stored is None:
            if asked.view is None or not (asked.view.held or asked.view.queued):
                raise no_such_group(name)
            stored = StoredGroup(name, asked.view.limit, 0)
        return await self._answer(tenant, stored, asked)

    async def limit(self, tenant: str, name: str, limit: int, actor: Actor) -> GroupAnswer:
        """Set its limit; a group that is not there begins. Raises 503 without an answer in time, 409 for
        one group too many."""
        if await self.index.get(tenant, name) is None and await self.index.limited(tenant) >= GROUPS_MAX:
            raise ProblemError(
                Kind.QUOTA_EXCEEDED,
                f"The tenant has given {GROUPS_MAX} groups a limit; delete some that no job names.",
            )
        client = await self._connection.client()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                left = await left_by(client, tenant, name)
                view: GroupView = await client.execute_update_with_start_workflow(
                    UPDATE_LIMIT,
                    GroupLimit(limit=limit, actor=actor),
                    start_workflow_operation=_start(left or GroupState(tenant=tenant, group=name)),
                    id=f"limit-{actor.operation}",
                    result_type=GroupView,
                )
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise _no_answer() from None
        except GroupUnread:
            raise _unread() from None
        try:
            await self.index.put(tenant, name, view.limit, view.limit_at or actor.at)
        except DatabaseUnavailable:
            raise _not_listed("The group has its new limit") from None
        stored = await self.index.get(tenant, name)
        return await self._answer(tenant, stored or StoredGroup(name, view.limit, 0), Asked(view, True))

    async def delete(self, tenant: str, name: str, actor: Actor) -> None:
        """Raises 404, or 409 while jobs name it or runs hold places in it; 503 without an answer in time."""
        stored = await self.index.get(tenant, name)
        if stored is not None and stored.members:
            [first] = await self.index.members(tenant, name, limit=1) or [""]
            raise ProblemError(
                Kind.GROUP_IN_USE,
                f"{stored.members} jobs name the group, `{first}` is one: take it out of their definitions "
                "first (`GET /v1/jobs?group=` lists them).",
            )
        ended = await self._end(tenant, name, actor)
        if stored is None and not ended:
            raise no_such_group(name)
        try:
            await self.index.delete(tenant, name)
        except DatabaseUnavailable:
            raise _not_listed("The group has ended") from None

    async def _end(self, tenant: str, name: str, actor: Actor) -> bool:
        """End the group's workflow; False if there is none. One that was terminated would come back with its
        limit and places: it does, and is asked as any other."""
        client = await self._connection.client()
        operation = f"delete-{actor.operation}"
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                try:
                    await _handle(client, tenant, name).execute_update(UPDATE_DELETE, actor, id=operation)
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                    if (left := await left_by(client, tenant, name)) is None:
                        return False
                    await client.execute_update_with_start_workflow(
                        UPDATE_DELETE, actor, start_workflow_operation=_start(left), id=operation
                    )
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise _no_answer() from None
        except GroupUnread:
            raise _unread() from None
        return True

    async def _view(self, tenant: str, name: str) -> Asked:
        try:
            async with asyncio.timeout(VIEW_WITHIN.total_seconds()):
                handle = _handle(await self._connection.client(), tenant, name)
                view: GroupView = await handle.query(
                    QUERY_VIEW,
                    result_type=GroupView,
                    reject_condition=QueryRejectCondition.NOT_OPEN,
                    rpc_timeout=VIEW_WITHIN,
                )
        except WorkflowQueryRejectedError:
            return Asked(None, True)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return Asked(None, True)
            log.info("group %s/%s does not answer: %s", tenant, name, error.message)
        except (WorkflowQueryFailedError, SetupError, TimeoutError) as error:
            log.info("group %s/%s cannot be asked: %s", tenant, name, error)
        else:
            return Asked(view, True)
        return Asked(None, False)

    async def _answer(self, tenant: str, stored: StoredGroup, asked: Asked) -> GroupAnswer:
        view = asked.view
        if view is None and asked.answered:
            view = GroupView(limit=stored.limit)  # with which it begins when the next run asks
        return GroupAnswer(
            name=stored.name,
            limit=stored.limit if view is None else view.limit,
            member_count=stored.members,
            members=list(await self.index.members(tenant, stored.name, limit=MEMBERS_SHOWN)),
            holders=None if view is None else _places(view.holders),
            held=None if view is None else view.held,
            waiting=None if view is None else _places(view.waiting),
            queued=None if view is None else view.queued,
            stale=not asked.answered,
        )


def no_such_group(name: str) -> ProblemError:
    return ProblemError(
        Kind.NOT_FOUND,
        f"There is no group `{name[:128]}`; see `GET /v1/groups` for those there are, or give it a limit.",
    )


def _handle(client: Client, tenant: str, name: str) -> WorkflowHandle[object, object]:
    return client.get_workflow_handle(group_workflow_id(tenant, name))


def _start(state: GroupState) -> WithStartWorkflowOperation[object, None]:
    """For an update of a group that may have to begin first."""
    start = WithStartWorkflowOperation[object, None](
        GROUP_WORKFLOW,
        state,
        id=group_workflow_id(state.tenant, state.group),
        task_queue=MAIN_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        priority=Priority(fairness_key=state.tenant),
        search_attributes=attributes(state.tenant),
        static_summary=f"group {state.group} of {state.tenant}",
    )
    started = asyncio.create_task(start.workflow_handle())  # else nobody retrieves its failure
    started.add_done_callback(lambda task: task.cancelled() or task.exception())
    return start


def _places(places: Sequence[GroupHolder | GroupWaiting]) -> list[GroupPlaceAnswer]:
    return [
        GroupPlaceAnswer(
            id=opaque_id(place.key),
            key=place.key,
            job=job_of(parse_key(place.key)[1])[0],
            since=place.granted_at if isinstance(place, GroupHolder) else place.at,
        )
        for place in places
    ]


def _not_listed(done: str) -> ProblemError:
    return ProblemError(
        Kind.DATABASE_UNAVAILABLE,
        f"{done}, but the database does not answer, so lists show it as it was: send the same call again.",
        headers=LATER,
    )


def _no_answer() -> ProblemError:
    return ProblemError(
        Kind.NO_ANSWER,
        "No worker answered in time. A change sent with it may still be applied: read the group before you "
        "send it again.",
        headers=LATER,
    )


def _unread() -> ProblemError:
    return ProblemError(
        Kind.NO_ANSWER,
        "The group was ended by force, and no worker can tell now which runs have a place in it; nothing was "
        "done: send the same call again.",
        headers=LATER,
    )
