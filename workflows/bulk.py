"""The bulk workflow: one action on every job that a filter matches, page by page.

A page holds the next jobs by id, so nothing that is created, deleted or changed between two pages
doubles or hides another job. Each page lies in the history before the action is applied to it, and
the action is named, so an activity that is run again does nothing twice.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import names
    from workflows.contracts.bulk import (
        PROBLEMS_KEPT,
        BulkCount,
        BulkNotes,
        BulkOutcome,
        BulkPage,
        BulkPageAsked,
        BulkState,
        BulkStep,
    )

PAGES_PER_HISTORY = 50
READ_WITHIN = timedelta(seconds=15)
APPLY_WITHIN = timedelta(hours=1)
LEASE = timedelta(seconds=10)
"""After so long without a beat another worker goes on with the page."""
UNTIL_IT_WORKS = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=15)
)
"""The database or the server may be away for a while."""


@workflow.defn(name=names.BULK_WORKFLOW)
class BulkWorkflow:
    @workflow.init
    def __init__(self, state: BulkState) -> None:
        self.state = state
        self._pages_here = 0

    @workflow.run
    async def run(self, _: BulkState) -> None:
        state = self.state
        if not state.counted:
            await self._count()
        while not state.order.dry_run and (state.pending or not state.last_page):
            workflow.set_current_details(_details(state))
            if state.pending:
                await self._apply()
            elif self._history_is_long():
                workflow.continue_as_new(state)
            else:
                await self._turn_page()
        if not state.order.dry_run:
            state.matched = state.done + state.failed
        state.ended_at = workflow.now()
        workflow.set_current_details(_details(state))

    @workflow.query(name=names.QUERY_PROGRESS)
    def progress(self) -> BulkState:
        return self.state

    def _history_is_long(self) -> bool:
        return self._pages_here >= PAGES_PER_HISTORY or workflow.info().is_continue_as_new_suggested()

    async def _count(self) -> None:
        found = await workflow.execute_activity(
            names.BULK_COUNT_ACTIVITY,
            self.state.order,
            result_type=BulkCount,
            start_to_close_timeout=READ_WITHIN,
            retry_policy=UNTIL_IT_WORKS,
        )
        self.state.counted, self.state.matched, self.state.sample = True, found.matched, found.sample

    async def _turn_page(self) -> None:
        state = self.state
        page = await workflow.execute_activity(
            names.BULK_PAGE_ACTIVITY,
            BulkPageAsked(order=state.order, cursor=state.cursor),
            result_type=BulkPage,
            start_to_close_timeout=READ_WITHIN,
            retry_policy=UNTIL_IT_WORKS,
        )
        self._pages_here += 1
        state.pending = page.jobs
        state.cursor, state.last_page = page.next_cursor, page.next_cursor is None

    async def _apply(self) -> None:
        """A worker that is stopped does a part of the page only; the rest stays pending."""
        state = self.state
        outcomes = await workflow.execute_activity(
            names.BULK_APPLY_ACTIVITY,
            BulkStep(order=state.order, jobs=state.pending),
            result_type=list[BulkOutcome],
            start_to_close_timeout=APPLY_WITHIN,
            heartbeat_timeout=LEASE,
            retry_policy=UNTIL_IT_WORKS,
            summary=f"{state.order.action} {len(state.pending)} {_noun(state)}",
        )
        told = {(outcome.ref, outcome.key) for outcome in outcomes}
        state.pending = [job for job in state.pending if (job.ref, job.key) not in told]
        refused = [outcome for outcome in outcomes if outcome.kind is not None]
        state.done += len(outcomes) - len(refused)
        state.failed += len(refused)
        state.matched = max(state.matched, state.done + state.failed)
        state.problems = [*state.problems, *refused][:PROBLEMS_KEPT]
        if len(refused) < len(outcomes):
            await self._note(outcomes)

    async def _note(self, outcomes: list[BulkOutcome]) -> None:
        await workflow.execute_activity(
            names.BULK_NOTE_ACTIVITY,
            BulkNotes(order=self.state.order, outcomes=outcomes),
            start_to_close_timeout=READ_WITHIN,
            retry_policy=UNTIL_IT_WORKS,
        )


def _noun(state: BulkState) -> str:
    return "dead letters" if state.order.action == "redrive" else "jobs"


def _details(state: BulkState) -> str:
    """Markdown for the Temporal UI."""
    asked = state.order
    what = f"**{asked.action}**, asked by {asked.actor.by or 'somebody'}{', dry run' * asked.dry_run}"
    return f"{what}\n\n{state.matched} {_noun(state)} match, {state.done} are done, {state.failed} failed"
