"""Backfills of a job: asked for, cancelled, paged in the background, and begun when it is their turn.

Not a workflow itself. The rules are in ``domain.backfill``.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from workflows.attempt import AttemptCall
    from workflows.changing import refusal
    from workflows.contracts import failures, names
    from workflows.contracts.actor import Actor
    from workflows.contracts.backfill import (
        BACKFILLS_OPEN,
        Backfill,
        BackfillAccepted,
        BackfillPage,
        BackfillRequest,
        CancelBackfill,
    )
    from workflows.contracts.job import RECENT_REQUESTS, InFlight, JobChanged, JobState
    from workflows.contracts.planning import PlannedOccurrence
    from workflows.domain import active, backfill, job_sources, unwritten
    from workflows.domain.gate import Decision
    from workflows.planned import Planned

PAGE_WITHIN = timedelta(seconds=30)
PAGE_AGAIN = timedelta(seconds=30)
"""The longest pause between two tries to read a page while the database is away."""


class Backfilling(Planned):
    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._paging: dict[int, asyncio.Task[None]] = {}
        """By the number of the backfill whose next page is on its way."""

    # -- updates -----------------------------------------------------------------------------------

    @workflow.update(name=names.UPDATE_BACKFILL)
    async def accept_backfill(self, request: BackfillRequest) -> BackfillAccepted:
        """Run occurrences of the past again; the same call is accepted once."""
        state = self.state
        one = self._asked_for(request.actor)
        if one is None:
            one = backfill.accept(state, request, self._accepted_at(request.actor))
            self._remember(request.actor)
        return BackfillAccepted(backfill=backfill.shown(one), revision=state.revision)

    @workflow.update(name=names.UPDATE_CANCEL_BACKFILL)
    async def cancel_backfill(self, request: CancelBackfill) -> JobChanged:
        """Nothing of it begins after the answer; what has begun goes on to its end, and is named."""
        state = self.state
        one = backfill.find(state, request.number)
        assert one is not None
        if one.status != "running":
            return self._unchanged()
        backfill.cancel(state, one, "asked", workflow.now())
        self._remember(request.actor)
        in_flight = [
            InFlight(key=row.key, state="in_flight") for row in state.beside if row.backfill == one.number
        ]
        run = state.run
        if run is None or run.backfill != one.number:
            return JobChanged(view=self.view(), in_flight=in_flight)
        if active.is_unserved(run):
            changed = await self._stopped("if_held", "backfill_cancelled")
            in_flight += [one for one in changed.in_flight if one.key == run.occurrence.key]
        else:
            in_flight.append(InFlight(key=run.occurrence.key, state="in_flight"))
        return JobChanged(view=self.view(), in_flight=in_flight)

    @accept_backfill.validator
    def _check_backfill(self, request: BackfillRequest) -> None:
        self._refuse_deleted()
        state, policy = self.state, self.state.definition.concurrency.policy
        if self._asked_for(request.actor) is not None:
            return
        if self._is_repeated(request.actor):
            raise refusal(failures.NO_SUCH_BACKFILL, "it has ended, and its progress is not kept any more")
        if request.max_concurrent > 1 and policy != "allow":
            raise refusal(failures.NOT_PARALLEL, policy)
        if len(backfill.opened(state)) >= BACKFILLS_OPEN:
            raise refusal(failures.TOO_MANY_BACKFILLS, f"{BACKFILLS_OPEN} backfills of the job are under way")

    @cancel_backfill.validator
    def _check_cancel_backfill(self, request: CancelBackfill) -> None:
        self._refuse_deleted()
        if backfill.find(self.state, request.number) is None:
            raise refusal(failures.NO_SUCH_BACKFILL, f"the job has no backfill b{request.number}")

    def _asked_for(self, actor: Actor) -> Backfill | None:
        """The backfill that this very call was answered with before."""
        known = self.state.backfills if actor.operation else []
        return next((one for one in known if one.operation == actor.operation), None)

    def _remember(self, actor: Actor) -> None:
        if actor.operation:
            self.state.operations = [*self.state.operations[1 - RECENT_REQUESTS :], actor.operation]
        self._changes += 1

    # -- pages -------------------------------------------------------------------------------------

    def _ask_pages(self) -> None:
        """Have the next pages read while the loop works off those it has."""
        self._paging = {number: task for number, task in self._paging.items() if not task.done()}
        for one in backfill.opened(self.state):
            if backfill.wants_page(self.state, one) and one.number not in self._paging:
                self._paging[one.number] = asyncio.create_task(self._page(one))

    async def _page(self, one: Backfill) -> None:
        """Until the database answers; what a history leaves, the next one asks for again."""
        state, number = self.state, one.number
        asked, told = backfill.page_asked(state, one), unwritten.unwritten(state)
        try:
            page = await workflow.execute_activity(
                names.BACKFILL_PAGE_ACTIVITY,
                asked,
                result_type=BackfillPage,
                start_to_close_timeout=PAGE_WITHIN,
                retry_policy=RetryPolicy(maximum_interval=PAGE_AGAIN),
                summary=f"occurrences of backfill b{number}",
            )
        except ActivityError as failure:  # nothing but a schedule that cannot be read is not tried again
            why = getattr(failure.cause, "message", "") or str(failure.cause)
            backfill.cancel(state, one, f"the schedule cannot be read any more: {why}", workflow.now())
        else:
            now = workflow.now()
            for key, later in unwritten.unwritten(state).items():
                told[key] = later if key not in told else later.joined(told[key])
            backfill.adopt(state, number, asked, page, told, now)
            await self._cancel_hold()
        self._changes += 1

    async def _cancel_hold(self) -> None:
        """A source with work ends a hold, as a pause does, if the rule says that it goes first."""
        state, now = self.state, workflow.now()
        run = state.run
        held = run is not None and active.is_held(run, now) and active.is_planned(run.occurrence.trigger)
        if held and backfill.turn(state, now) is not None:
            await self._make_way(Decision.RUN)

    # -- slices ------------------------------------------------------------------------------------

    def _take_backfill(self) -> bool:
        """Begin the next occurrence of a backfill if it is its turn; False: there is none."""
        state, now = self.state, workflow.now()
        self._ask_pages()
        one = backfill.turn(state, now)
        if one is None:
            return False
        entry = backfill.take(state, one, now)
        if entry is not None:
            backfill.give_due_its_time(state, now)
            job_sources.begin_backfill(state, backfill.key_of(state, one, entry), entry, one.number, now)
            one.turned_at = state.turns
        return True

    async def _due_beside(self, call: AttemptCall | None) -> PlannedOccurrence | None:
        await self._fill_beside()
        return await super()._due_beside(call)

    async def _fill_beside(self) -> None:
        """Under ``allow`` further runs of backfills start beside the one the loop has."""
        state = self.state
        self._ask_pages()
        while (one := backfill.beside_turn(state)) is not None:
            now = workflow.now()
            entry = backfill.take(state, one, now)
            if entry is None:
                continue
            aside, key = job_sources.alone(state), backfill.key_of(state, one, entry)
            run = job_sources.begin_backfill(aside, key, entry, one.number, now)
            if not await self._run_beside(aside):
                backfill.put_back(state, run)
                return
