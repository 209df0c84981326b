"""The one alert that nothing has to happen for: a job that goes without success for too long.

Not a workflow itself. It is opt-in: a job without this alert has neither the task nor its timer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.attempting import Attempting
    from workflows.contracts.base import rfc3339
    from workflows.contracts.job import JobState
    from workflows.domain import incidents


SLEEP_AT_MOST = timedelta(days=30)


class Watched(Attempting):
    def __init__(self, state: JobState) -> None:
        super().__init__(state)
        self._watch_task: asyncio.Task[None] | None = None

    def _watch_success(self) -> None:
        """Wake at the instant at which the job will have gone without success for too long; beside the
        loop, which may be in one run for hours."""
        wanted = incidents.no_success_deadline(self.state) is not None
        if wanted and (self._watch_task is None or self._watch_task.done()):
            self._watch_task = asyncio.create_task(self._tell_of_no_success())

    async def _tell_of_no_success(self) -> None:
        """Sleeps through successes, so that a job that does well costs one timer in all that time."""
        state = self.state
        while (deadline := incidents.no_success_deadline(state)) is not None:
            if deadline <= workflow.now():
                incidents.no_success(state, workflow.now())
                self._send_errands()
            else:
                await self._while_it_stands(deadline)

    async def _while_it_stands(self, deadline: datetime) -> None:
        """Until then, or until something brings it nearer or takes it away."""

        def moved() -> bool:
            present = incidents.no_success_deadline(self.state)
            return present is None or present < deadline

        with suppress(TimeoutError):
            await workflow.wait_condition(
                moved,
                timeout=min(deadline - workflow.now(), SLEEP_AT_MOST),
                timeout_summary=f"no success until {rfc3339(deadline)}",
            )
