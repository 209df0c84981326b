"""The job workflow's input and state, its updates and its view."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from workflows.contracts.actor import Actor
from workflows.contracts.attempt import Occurrence, OwnBody
from workflows.contracts.backfill import Backfill
from workflows.contracts.base import Contract, Instant
from workflows.contracts.definition import JobDefinition
from workflows.contracts.errands import Errand
from workflows.contracts.group import GroupPlace
from workflows.contracts.incident import OpenIncident
from workflows.contracts.planning import LeftBehind, PlannedOccurrence, TenantHints
from workflows.contracts.records import AttemptRow, ExecutionRow, LastRun, Pause, Record, Stats

RECENT_REQUESTS = 100
SKIPS_MAX = 100
SERVED_KEPT = 100
RECORDS_MAX = 200
RECORDS_MAX_BYTES = 128 * 1024
UNWRITTEN_RUNS_MAX = 200
CARRIED_BYTES = 32 * 1024


class UnwrittenRun(Contract):
    """A run beside the loop that has ended, as its job has to know it while the database does not."""

    key: str
    succeeded: bool
    attempts: int
    """The highest under the occurrence's own key of which the database may not know."""


class RunState(Contract):
    """The occurrence that is being run: held, waiting for a retry, or in flight. Mutable."""

    model_config = ConfigDict(frozen=False)

    occurrence: Occurrence
    attempt: int = 1
    fires_at: Instant
    not_after: Instant | None = None
    deliveries: int = 0
    reaps: int = 0
    started_at: Instant | None = None
    lateness_ms: int | None = None
    run_number: int = 0
    not_before: Instant | None = None
    """A worker that returned the run asked for it not to be scheduled again earlier."""
    holdable: bool = True
    """False: a worker's clock runs ahead, so the server's timer decides when the run is due."""
    first_attempt: int = 1
    """The attempt that a redrive began with; attempts and backoff count from it."""
    story: list[AttemptRow] = []
    """Attempts that have ended, for the dead letter: the last ones, oldest first, without answers."""
    forced: bool = False
    """It asks neither gate nor group."""
    group_since: Instant | None = None
    """When it asked for a place; from there on it is active."""
    backfill: int | None = None
    """Number of the backfill it belongs to."""
    lost_leases: int = 0
    """Reaps of this execution that an incident has been told of."""
    waited_until: Instant | None = None
    """When it left the line in which it stood behind a run of its own job."""
    overran: bool = False
    """Its holder may have told of the occurrences that it was in the way of."""
    stop: str | None = None
    """Why it is stopped as it begins beside the loop: somebody asked for it before it was sure to begin."""


class ManualRun(Contract):
    request: str
    at: Instant
    by: str = ""
    body: OwnBody | None = None
    forced: bool = False
    """It asks neither gate nor group."""


class QueuedRun(Contract):
    """A redrive or rerun that waits for its turn."""

    occurrence: Occurrence
    attempt: int = 1
    story: list[AttemptRow] = []
    by: str = ""
    at: Instant
    forced: bool = False


class BesideRun(ExecutionRow):
    """A run beside the loop that has not told its end."""

    forced: bool = True
    """The gate does not count it."""
    name: str = ""
    """Of its workflow, see ``names.run_name``; empty: that of its key."""
    backfill: int | None = None
    unsure: RunState | None = None
    """Set: it is not known whether its workflow was started, which is started with this until it is."""
    begun_at: Instant | None = None
    """When the job began it; not told by histories that 0.2.0 began."""
    waited_until: Instant | None = None
    """When it left the line in which it stood behind a run of its own job."""
    stop: str | None = None
    """Why it is to be stopped as soon as it is sure."""


class AnsweredRequest(Contract):
    """A remembered answer, so that a repeated call is answered and not done again."""

    id: str
    key: str
    at: Instant | None = None
    """The instant of the run, as it was answered first."""


class JobState(Contract):
    """All a job is; passed on at every continue-as-new. Mutable: its workflow is its only writer."""

    model_config = ConfigDict(frozen=False)

    tenant: str
    job: str
    ref: str
    generation: int = 1
    definition: JobDefinition
    revision: int = 1
    change: int = 1
    created_at: Instant
    created_by: str = ""
    updated_at: Instant
    cursor: Instant
    """Occurrences up to this nominal instant are settled."""
    served: list[Instant] = []
    """Nominal instants of the last :data:`SERVED_KEPT` occurrences that ran, or were skipped while older
    ones waited: none of them is planned again."""
    owed_once: Instant | None = None
    """The one occurrence that an edit gave the job. A later one that an earlier schedule left under way does
    not go past it."""
    plan: list[PlannedOccurrence] = []
    plan_exhausted: bool = False
    planned_at: Instant | None = None
    tzdata: str = ""
    hints: TenantHints = TenantHints()
    pause: Pause | None = None
    passed_until: Instant | None = None
    """Occurrences due up to here did not run and are only counted, by the next plan."""
    passed_reason: str = "paused"
    late_until: Instant | None = None
    run: RunState | None = None
    place: GroupPlace | None = None
    """What the run has, or waits for, in its concurrency group."""
    triggers: list[ManualRun] = []
    redrives: list[QueuedRun] = []
    """Redrives and reruns that have been accepted and not begun, oldest first."""
    beside: list[BesideRun] = []
    """Runs beside the loop that have not told their end."""
    backfills: list[Backfill] = []
    """Those under way, oldest first, then those whose progress can still be read."""
    backfill_number: int = 0
    turns: int = 0
    """Runs the loop has begun; a backfill gets at least every tenth."""
    last_run_ms: int = 0
    """How long the loop's last run took."""
    errands: list[Errand] = []
    """What other workflows have to be told still, oldest first."""
    errands_given_up: int = 0
    """Those that were refused for too long, or were too many."""
    runs_errands: bool = False
    """Set from the beginning; histories that 0.1.0 began find it out (``workflows.attempting``)."""
    minds_beside: bool = False
    """Set from the beginning; histories that 0.2.0 began take a run beside the loop whose start was not
    confirmed for not started, and do not ask after one that is silent for long."""
    keeps_overdue: bool = False
    """Set from the beginning; in histories that 0.2.0 began, what was overdue before a run started counts to
    ``max_queued`` under ``catch_up`` ``all`` too."""
    stops_unsure: bool = False
    """Set from the beginning; in histories that 0.3.0 began, a run that is to be stopped before it is known
    whether it has been started is started first."""
    keeps_line: bool = False
    """Set from the beginning; in histories that 0.3.0 began, a backfill or trigger makes the line reach over
    what is overdue."""
    as_of_0_4: bool = False
    """Set from the beginning. Histories that 0.3.0 began go on as they were: a run that was sent and lost its
    lease is missed behind its ``not_after`` where it has to ask for a place, is taken for unsent where it
    was to stop before its holder's first word, and ends as cancelled where an edit or a pause meets it; a
    deletion cancels a retry that a worker holds, and leaves no dead letter; no pause, edit or deletion
    reaches runs beside the loop, which do not tell when what they owed the database is written; nothing
    held can be skipped while another run is beside it; the loop takes the next run of a backfill though as
    many as may be at once are beside it; what was asked for and found no room waits for the loop under
    ``allow`` too; an edit of the timing costs any run its turn in its group; and a success under another key
    of the same occurrence leaves its dead letter open."""
    unwritten_runs: list[UnwrittenRun] = []
    """Runs beside the loop that have ended and whose records the database may not have, oldest first."""
    owes_word: bool = False
    """Of a run beside the loop: its job was told that the database does not know its end."""
    open_letters: list[str] = []
    """Keys of the job's open dead letters, oldest first."""
    reruns: list[str] = []
    """Keys of the last :data:`RECENT_REQUESTS` reruns."""
    incidents: list[OpenIncident] = []
    """Incidents the job has opened and not seen recover."""
    told_at: Instant | None = None
    """Instant of the last word on an incident; the next one is later."""
    consecutive_skips: int = 0
    """Occurrences skipped by the gate since the last one that was not followed by such a skip."""
    skips_at_last_end: int = 0
    """What ``consecutive_skips`` was when the last run ended."""
    forgiven_failures: int = 0
    """Consecutive failures that do not count towards ``pause_after``: they lie before the last resume."""
    watched_since: Instant | None = None
    """When time without success began to count, by an edit or a resume."""
    operations: list[str] = []
    """The last :data:`RECENT_REQUESTS` changes that carried an id, oldest first: done once each."""
    skips: list[Instant] = []
    """Nominal instants of future occurrences that were asked to be left out, ascending."""
    requests: list[AnsweredRequest] = []
    """The last :data:`RECENT_REQUESTS` manual requests, oldest first."""
    scheduled_runs: int = 0
    run_number: int = 0
    stats: Stats = Stats()
    last_run: LastRun | None = None
    completed_at: Instant | None = None
    records: list[Record] = []
    storing: bool = True
    """The last attempt's records were stored: those left over may ride along."""
    deleted: bool = False
    missed: ExecutionRow | None = None
    """The row of a stretch that was missed, as long as nothing has run since."""
    blocked_since: Instant | None = None
    """Start of the runs that held the schedule up: one of another source, or a line of waiting ones."""
    blocked_until: Instant | None = None
    """End of the run after which the planner has to set up the line anew."""
    line_is_up: bool = False
    """The planner has set it up: the two say what stands in it, and a later line may take their place."""
    counted_since: Instant | None = None
    """Where all is caught up: since when runs that were in time followed one another …"""
    counted_until: Instant | None = None
    """… and the end of the last one."""
    left_behind: list[LeftBehind] = []
    """What edits of the timing left to the planner to count, oldest first."""


class InFlight(Contract):
    key: str
    state: Literal["in_flight", "stopping"]


class EditRequest(Contract):
    definition: JobDefinition
    if_revision: int | None = None
    reaches_back: bool = False
    """Always, but in histories of 0.4.0: a one-off of the last minute runs at once, as at a creation."""
    actor: Actor


class PauseRequest(Contract):
    reason: str = ""
    until: Instant | None = None
    actor: Actor


class ResumeRequest(Contract):
    actor: Actor


class TriggerRequest(Contract):
    request: str
    body: OwnBody | None = None
    force: bool = False
    """Run beside whatever is active, by a workflow of its own."""
    actor: Actor


class SkipRequest(Contract):
    """Leave out one future occurrence, or take that back."""

    scheduled_time: Instant
    skipped: bool = True
    actor: Actor


class CancelRequest(Contract):
    """Stop the execution with this key wherever it is."""

    key: str
    actor: Actor


class RedriveRequest(Contract):
    """Run an occurrence again: a dead letter from its next attempt on, or a success under a new key.

    The key of a rerun is ``occurrence.key``, which the caller has composed (``+r{n}``).
    """

    occurrence: Occurrence
    attempt: int = 1
    story: list[AttemptRow] = []
    force: bool = False
    """Past gate and group, beside the loop."""
    actor: Actor


class DeleteRequest(Contract):
    running: Literal["finish", "cancel"] = "finish"
    if_revision: int | None = None
    actor: Actor


class RunEnded(Contract):
    """How a run beside the loop ended."""

    last_run: LastRun
    ended_at: Instant
    incidents: list[OpenIncident] = []
    """What it has told of and not seen recover; the job's next success is the end of it."""
    unwritten: UnwrittenRun | None = None
    """None: its records are in the database."""


class Standing(Contract):
    """What a run beside the loop has to know of its job: whether it may be sent, and as what."""

    pause: Pause | None = None
    deleted: bool = False
    definition: JobDefinition | None = None
    """After an edit: what its next attempt is sent under."""
    revision: int = 0


class FiredSignal(Contract):
    """A worker's word that a run it was asked to stop had fired already."""

    key: str
    attempt: int


class JobView(Contract):
    """A job as the workflow knows it; what ``GET`` answers from."""

    tenant: str = ""
    job: str
    ref: str
    generation: int
    definition: JobDefinition
    status: Literal["active", "paused", "completed", "deleted"]
    revision: int
    change: int
    created_at: Instant
    updated_at: Instant
    pause: Pause | None = None
    plan: list[PlannedOccurrence] = []
    """Known next occurrences; may hold fewer than a client wants to see."""
    cursor: Instant
    scheduled_runs: int = 0
    run_number: int = 0
    last_run: LastRun | None = None
    stats: Stats = Stats()
    current: ExecutionRow | None = None
    """The occurrence that is alive now, if any."""
    skips: list[Instant] = []
    waiting: list[ExecutionRow] = []
    """Manual runs that have been accepted and wait for their turn."""
    beside: list[ExecutionRow] = []
    """Runs beside the loop."""
    backfills: list[Backfill] = []
    reruns: list[str] = []
    """Keys of the last reruns."""


class JobChanged(Contract):
    """Answer of every update: the job after it, and what could not be stopped."""

    view: JobView
    in_flight: list[InFlight] = []


class Triggered(Contract):
    execution: ExecutionRow
    repeated: bool = False


class StopIntent(Contract):
    """Answer of the ``stop_intent`` query: what a cancelled attempt that has fired should do."""

    intent: Literal["none", "if_held", "now"] = "none"
    reason: str = ""
