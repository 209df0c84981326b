"""The incident workflow: one message when it opens, one when it is over, and its row.

The message is tried for a day by one activity, the row until the database takes it; neither waits
for the other, and no run waits for either.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import names
    from workflows.contracts.incident import NOTIFY_FOR, IncidentState, IncidentWord, Message
    from workflows.domain import incident_state

TRY_WITHIN = timedelta(seconds=30)
LEAST_LEFT = timedelta(minutes=1)
"""A message whose day was used up by continue-as-new is still tried for this long."""


@workflow.defn(name=names.INCIDENT_WORKFLOW)
class IncidentWorkflow:
    @workflow.init
    def __init__(self, state: IncidentState) -> None:
        self.state = state
        self._store_task: asyncio.Task[None] | None = None

    @workflow.run
    async def run(self, _: IncidentState) -> None:
        state = self.state
        while True:
            if self._history_is_long():
                workflow.continue_as_new(state)
            workflow.set_current_details(incident_state.describe(state))
            self._store()
            if (message := incident_state.owed(state.incident)) is not None:
                await self._notify(message)
            elif state.incident.closed_at is None:
                await self._wait_for_its_end()
            elif state.following is not None:
                incident_state.begin_following(state)
            elif state.unstored:
                await workflow.wait_condition(
                    lambda: not state.unstored or state.following is not None or self._history_is_long()
                )
            else:
                return

    @workflow.signal(name=names.SIGNAL_INCIDENT)
    def incident(self, word: IncidentWord) -> None:
        incident_state.hear(self.state, word)
        workflow.set_current_details(incident_state.describe(self.state))
        self._store()

    def _history_is_long(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    async def _wait_for_its_end(self) -> None:
        incident = self.state.incident
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self.state.incident.closed_at is not None or self._history_is_long(),
                timeout=max(incident_state.forgotten_at(incident) - workflow.now(), timedelta(seconds=1)),
                timeout_summary="until it is forgotten",
            )
        incident_state.forget(self.state, workflow.now())

    async def _notify(self, message: Message) -> None:
        """Try for a day. A history that grows long meanwhile goes on with the same message."""
        incident = self.state.incident
        since = incident.opened_at if message == "opened" else incident.recovered_at or incident.last_at
        call = workflow.start_activity(
            names.NOTIFY_ACTIVITY,
            incident_state.notification(self.state, message),
            result_type=str,
            start_to_close_timeout=TRY_WITHIN,
            schedule_to_close_timeout=max(since + NOTIFY_FOR - workflow.now(), LEAST_LEFT),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=2), maximum_interval=timedelta(minutes=15)
            ),
            priority=Priority(priority_key=5, fairness_key=incident.tenant),
            summary=f"{message}: {incident.kind}",
        )
        await workflow.wait_condition(lambda: call.done() or self._history_is_long())
        if not call.done():
            call.cancel()
            with suppress(ActivityError):
                await call
            return
        try:
            notice = await call
        except ActivityError:
            notice = "failed"
        incident_state.told(self.state, message, notice, workflow.now())

    def _store(self) -> None:
        if self.state.unstored and (self._store_task is None or self._store_task.done()):
            self._store_task = asyncio.create_task(self._store_rows())

    async def _store_rows(self) -> None:
        """Until the database has all of them: nothing else waits for it."""
        state = self.state
        while state.unstored:
            rows = list(state.unstored)
            await workflow.execute_activity(
                names.STORE_INCIDENTS_ACTIVITY,
                rows,
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_interval=timedelta(minutes=1)),
                priority=Priority(priority_key=5, fairness_key=state.incident.tenant),
                summary="write its row",
            )
            incident_state.stored(state, rows)
            workflow.set_current_details(incident_state.describe(state))
