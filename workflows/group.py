"""A concurrency group: grants its places first come, first served (docs/groups.md).

What happens to the places is in ``domain.group``; this module tells the holders, and asks those that
stay silent. A group that nobody waits for has no timer, and costs nothing.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import failures, names
    from workflows.contracts.actor import Actor
    from workflows.contracts.group import (
        GroupAsk,
        GroupGrant,
        GroupHolder,
        GroupLeave,
        GroupLimit,
        GroupState,
        GroupView,
    )
    from workflows.domain import group

SIGNALS_PER_HISTORY = 1_000
"""Words taken in before the group continues as new; a run of a workflow takes 10,000 signals."""
QUESTIONS_WITHIN = timedelta(seconds=8)
"""For one round of questions: the worker that puts them has so long to answer."""


@workflow.defn(name=names.GROUP_WORKFLOW)
class GroupWorkflow:
    @workflow.init
    def __init__(self, state: GroupState) -> None:
        self.state = state
        self._deleted = False
        self._signals = 0
        self._moves = 0
        """Whatever changes the state; the loop wakes when it moves."""
        self._watch_task: asyncio.Task[None] | None = None

    @workflow.run
    async def run(self, _: GroupState) -> None:
        while not (self._has_ended() and workflow.all_handlers_finished()):
            seen = self._moves
            await self._tell_holders()
            workflow.set_current_details(group.describe(self.state))
            self._keep_watch()
            if self._history_is_long():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self.state)
            await self._moved(seen)

    def _keep_watch(self) -> None:
        if self.state.waiting and (self._watch_task is None or self._watch_task.done()):
            self._watch_task = asyncio.create_task(self._watch())

    async def _moved(self, seen: int) -> None:
        """Without a bound: a group at rest waits for nothing but a word."""
        await workflow.wait_condition(
            lambda: self._moves != seen or (self._has_ended() and workflow.all_handlers_finished())
        )

    def _has_ended(self) -> bool:
        return self._deleted and not self.state.holders and not self.state.waiting

    def _history_is_long(self) -> bool:
        return self._signals >= SIGNALS_PER_HISTORY or workflow.info().is_continue_as_new_suggested()

    # -- telling and asking ------------------------------------------------------------------------

    async def _tell_holders(self) -> None:
        """Every grant reaches its workflow, or is taken back and goes to the next."""
        state = self.state
        while grants := group.untold(state):
            reached = await asyncio.gather(*(self._tell(grant) for grant in grants))
            told = {grant.token for grant, done in zip(grants, reached, strict=True) if done}
            group.told(state, told)
            group.release(state, {grant.token for grant in grants} - told, workflow.now())

    async def _tell(self, holder: GroupHolder) -> bool:
        """False: its workflow has ended, or never was."""
        grant = self._grant_of(holder)
        try:
            await workflow.get_external_workflow_handle(holder.workflow_id).signal(
                names.SIGNAL_GRANTED, grant
            )
        except ApplicationError:
            return False
        return True

    async def _watch(self) -> None:
        """While runs wait: look after the places, and ask those who have them and stay silent."""
        state = self.state
        while state.waiting:
            now = workflow.now()
            until = group.look_again_at(state, now)
            await workflow.sleep(until - now, summary="are the places still held?")
            group.expire(state, workflow.now())
            await self._question(group.silent(state, workflow.now()))
            self._moves += 1

    async def _question(self, holders: list[GroupHolder]) -> None:
        """Free the places of those who say that they hold none, or are gone. No answer changes nothing:
        a worker or server in trouble must not lead to two runs side by side."""
        if not holders:
            return
        group.questioned(self.state, {holder.token for holder in holders}, workflow.now())
        try:
            gone: list[int] = await workflow.execute_activity(
                names.ASK_HOLDERS_ACTIVITY,
                args=[[self._grant_of(holder) for holder in holders], [one.workflow_id for one in holders]],
                result_type=list[int],
                schedule_to_close_timeout=QUESTIONS_WITHIN,
                retry_policy=RetryPolicy(maximum_attempts=1),
                summary="1 holder" if len(holders) == 1 else f"{len(holders)} holders",
            )
        except ActivityError:
            workflow.logger.warning("no worker could ask the holders; they keep their places")
            return
        group.release(self.state, gone, workflow.now())

    def _grant_of(self, holder: GroupHolder) -> GroupGrant:
        return GroupGrant(
            group=self.state.group, key=holder.key, token=holder.token, expires_at=holder.expires_at
        )

    # -- words, changes, questions -----------------------------------------------------------------

    @workflow.signal(name=names.SIGNAL_ASK)
    def ask(self, asked: GroupAsk) -> None:
        self._deleted = False  # somebody needs it again
        group.ask(self.state, asked, workflow.now())
        self._heard()

    @workflow.signal(name=names.SIGNAL_LEAVE)
    def leave(self, left: GroupLeave) -> None:
        group.leave(self.state, left, workflow.now())
        self._heard()

    def _heard(self) -> None:
        self._signals += 1
        self._moves += 1

    @workflow.update(name=names.UPDATE_LIMIT)
    def limit(self, request: GroupLimit) -> GroupView:
        self._deleted = False
        group.set_limit(self.state, request.limit, workflow.now())
        self._heard()
        return self.view()

    @workflow.update(name=names.UPDATE_DELETE)
    async def delete(self, _: Actor) -> GroupView:
        """End, unless runs hold places or wait for some. Raises ``GroupInUse``."""
        await self._question([holder for holder in self.state.holders if holder.told])
        state = self.state
        if state.holders or state.waiting:
            first = state.holders[0].key if state.holders else state.waiting[0].key
            raise ApplicationError(first, type=failures.GROUP_IN_USE, non_retryable=True)
        self._deleted = True
        self._heard()
        return self.view()

    @workflow.query(name=names.QUERY_VIEW)
    def view(self) -> GroupView:
        return group.view(self.state, deleted=self._deleted)

    @workflow.query(name=names.QUERY_STATE)
    def all_of_it(self) -> GroupState:
        """For the next workflow of this group, should this one have been terminated."""
        return self.state
