"""Questions of a workflow to whatever worker has its task: short activities on the workflow's own queue.

Not a workflow itself. They are no local activities, since a query that arrives meanwhile ends the workflow
task of one: it is then resolved in the next task, later and beside whatever else has come by then, but in the
first one when the history is replayed (SDK 1.35).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.contracts.base import Contract
    from workflows.contracts.job import JobState


class Asking:
    def __init__(self, state: JobState) -> None:
        self.state = state

    async def _ask(self, name: str, asked: Contract, *, result_type: type | None = None,
                   each: timedelta | None = None, at_all: timedelta | None = None,
                   attempts: int = 3, summary: str) -> Any:  # fmt: skip
        """The worker's answer. ``each``, ``at_all``: bounds of one try and of all; ``summary``: for the
        Temporal UI. Raises ActivityError."""
        retry = RetryPolicy(maximum_attempts=attempts)
        if not self.state.runs_errands:  # a history that 0.1.0 began
            return await workflow.execute_local_activity(
                name,
                asked,
                result_type=result_type,
                start_to_close_timeout=each,
                schedule_to_close_timeout=at_all,
                retry_policy=retry,
            )
        return await workflow.execute_activity(
            name,
            asked,
            result_type=result_type,
            start_to_close_timeout=each,
            schedule_to_close_timeout=at_all,
            retry_policy=retry,
            priority=Priority(fairness_key=self.state.tenant, fairness_weight=self.state.hints.weight),
            summary=summary,
        )
