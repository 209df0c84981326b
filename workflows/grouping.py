"""A run's way into its concurrency group and out of it again; what jobs and runs beside them share.

A grouped run is not held by a worker before it has its place: it waits here until it is due, asks, and
waits for the grant. Not a workflow itself.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from workflows.asking import Asking
    from workflows.contracts import names
    from workflows.contracts.group import GroupAsk, GroupGrant
    from workflows.contracts.job import JobState, RunState
    from workflows.domain import job_group, job_state

NEVER_ASKED = datetime.min.replace(tzinfo=UTC)
ASK_WITHIN = timedelta(seconds=5)
ASK_SOON = timedelta(seconds=10)
"""The pause after an ask that did not reach the group."""
LEAVE_FIRST = timedelta(seconds=10)
"""An ask waits so long for the word that its run had left the group before."""


class Grouping(Asking):
    """``_changes`` moves when a grant comes, so that it ends a wait."""

    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._changes = 0
        """Accepted changes; a wait ends when it moves."""
        self._ask_again_at = NEVER_ASKED

    async def _until_attempt(self, run: RunState, wake: datetime) -> None:
        """Wait until ``wake`` or the next change; decide meanwhile about what falls due beside the run."""
        raise NotImplementedError

    def _send_errands(self) -> None:
        raise NotImplementedError

    def _settle_group(self) -> None:
        """Give back what is not needed any more. The loop of every workflow begins with it."""
        job_group.settle(self.state, workflow.info().workflow_id, workflow.now())

    async def _enter_group(self, run: RunState) -> bool:
        """Whether the attempt may go on; else something was waited for, and the state is another."""
        state, now = self.state, workflow.now()
        group = job_group.wanted(state)
        if group is None or job_group.has_place(state, run, now):
            return True
        if job_group.due(run) > now:
            await self._until_attempt(run, job_group.due(run))
        elif job_group.is_late(state, run, now):
            job_state.late(state, run, now)
        elif self._must_ask(now):
            await self._ask_group(run, group)
        else:
            await self._until_attempt(run, self._ask_again_at)
        return False

    def _must_ask(self, now: datetime) -> bool:
        """It has not asked yet, its grant runs out too early, or the answer is long in coming."""
        place = self.state.place
        return place is None or place.token is not None or self._ask_again_at <= now

    async def _ask_group(self, run: RunState, group: str) -> None:
        state, key = self.state, run.occurrence.key
        if job_group.is_leaving(state, key):  # else that word could take this ask back
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: not job_group.is_leaving(state, key), timeout=LEAVE_FIRST
                )
            if state.run is not run or job_group.wanted(state) != group:
                return
        now = workflow.now()
        asked = job_group.asks(state, run, group, workflow.info().workflow_id, now)
        self._ask_again_at = job_group.ask_again_at(run, now)
        if not await self._reach_group(asked):
            self._ask_again_at = workflow.now() + ASK_SOON

    async def _reach_group(self, asked: GroupAsk) -> bool:
        try:
            await self._ask(
                names.ASK_GROUP_ACTIVITY,
                asked,
                at_all=ASK_WITHIN,
                attempts=2,
                summary=f"ask group {asked.group}",
            )
        except ActivityError:
            workflow.logger.warning("the group %s could not be asked", asked.group)
            return False
        return True

    @workflow.signal(name=names.SIGNAL_GRANTED)
    def granted(self, grant: GroupGrant) -> None:
        """The group's word that a run has its place."""
        job_group.granted(self.state, grant, workflow.info().workflow_id)
        self._send_errands()
        self._changes += 1

    @workflow.update(name=names.UPDATE_HOLDS)
    def holds(self, grant: GroupGrant) -> bool:
        """The group's question to a run that has been silent for a while."""
        return job_group.holds(self.state, grant)
