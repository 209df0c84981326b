"""Between the SDK's core and the workflows: what the core (1.35) gets wrong of a workflow it loads anew.

A history is replayed task by task. Twice the core lets a live workflow see something else than its replay
will, and what it then decides cannot be replayed: its workflow tasks fail for good, and a job stands still.

**A query ahead of its task.** A query that comes with a whole history, as after its worker's death, applies
events that no workflow task has seen yet, under the time of the last one that was seen. What the workflow
decides then is sent with the next task. A replay decides in that task, by its time, and beside what came
until it began. So a workflow that a query has brought ahead is forgotten after the answer.

**An update with what was there before it.** A worker that loads a workflow for an update applies in one go
what two tasks had in a row, if both tasks before it sent no command; and of one go, updates come first. A
replay knows of the update, and keeps the two apart. So what is not an update comes first, in every go of a
history in which a worker has met the case; a flag of the SDK's own kind says so in that history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import Worker, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

UPDATES_LAST = 10_001
"""Recorded with a workflow task, as the flags of the SDK's language side are; its own are small numbers."""

LEGACY_QUERY = "legacy_query"
"""The core's id of a query that comes without a workflow task."""

WITH_UPDATES = frozenset(("do_update", "signal_workflow", "notify_has_patch", "update_random_seed"))
"""Jobs that may go with an update: signals keep their place before or behind it in any case."""

ENDS = (
    "complete_workflow_execution",
    "fail_workflow_execution",
    "cancel_workflow_execution",
    "continue_as_new_workflow_execution",
)

Evict = Callable[[str], None]


class ReplayableRunner(WorkflowRunner):
    """Wraps another runner. A worker that it serves has to be named to it, for what it may forget; a
    replayer has neither queries nor anything to forget."""

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner
        self._worker: Worker | None = None
        self.evicted = 0
        """Runs that were forgotten after a query."""

    def serve(self, worker: Worker) -> None:
        self._worker = worker

    def prepare_workflow(self, defn: Any) -> None:
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _Instance(self._inner.create_instance(det), self._evict)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        self._inner.set_worker_level_failure_exception_types(types)

    def _evict(self, run_id: str) -> None:
        if self._worker is not None:
            self.evicted += 1
            self._worker._bridge_worker.request_workflow_eviction(run_id)  # there is no public way


class _Instance(WorkflowInstance):
    """One workflow in a worker's memory."""

    def __init__(self, inner: WorkflowInstance, evict: Evict) -> None:
        self._inner = inner
        self._evict = evict
        self._time: int | None = None
        """Time of the last activation, in ns: that of the workflow task behind it."""
        self._ahead = False
        """The last activation was not a replay's, and yet no workflow task has begun since the one before."""
        self._lived = False
        """There has been an activation that was not a replay's."""

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        kinds = {str(job.WhichOneof("variant")) for job in act.jobs}
        if kinds == {"query_workflow"}:
            if self._ahead and act.jobs[0].query_workflow.query_id == LEGACY_QUERY:
                self._evict(act.run_id)  # before the answer: nothing can come between
            return self._inner.activate(act)
        if kinds == {"remove_from_cache"}:
            return self._inner.activate(act)
        time = act.timestamp.ToNanoseconds()
        self._ahead = not act.is_replaying and self._time is not None and time <= self._time
        self._time = time
        is_loaded, self._lived = not self._lived, self._lived or not act.is_replaying
        if "do_update" not in kinds or kinds <= WITH_UPDATES:
            return self._inner.activate(act)
        if UPDATES_LAST in act.available_internal_flags:
            return self._updates_last(act)
        if is_loaded and not act.is_replaying:
            completion = self._updates_last(act)
            if completion.HasField("successful"):
                completion.successful.used_internal_flags.append(UPDATES_LAST)
            return completion
        return self._inner.activate(act)

    def _updates_last(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """As two activations. Where the first ends the workflow, the server sends the updates elsewhere."""
        first, second = WorkflowActivation(), WorkflowActivation()
        for part in (first, second):
            part.CopyFrom(act)
            del part.jobs[:]
        first.jobs.extend(job for job in act.jobs if not job.HasField("do_update"))
        second.jobs.extend(job for job in act.jobs if job.HasField("do_update"))
        before = self._inner.activate(first)
        if not before.HasField("successful") or any(
            command.WhichOneof("variant") in ENDS for command in before.successful.commands
        ):
            return before
        after = self._inner.activate(second)
        if not after.HasField("successful"):
            return after
        before.successful.commands.extend(after.successful.commands)
        before.successful.used_internal_flags.extend(after.successful.used_internal_flags)
        return before

    # -- passed on ---------------------------------------------------------------------------------

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()
