"""When a job has to say that something is wrong, and when it says that it is over (docs/incidents.md).

All functions change the state they are given and wait for nothing: what is to be told lies in its
errands. A kind is open once a job; ``dead_letter``, ``missed`` and ``lease_lost`` are told again each
time, and counted where they are told.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from workflows.contracts.attempt import AttemptInput, Overrun
from workflows.contracts.base import rfc3339
from workflows.contracts.errands import TellIncident
from workflows.contracts.incident import FORGOTTEN_AFTER, IncidentKind, IncidentWord, OpenIncident
from workflows.contracts.job import JobState, RunEnded, RunState
from workflows.contracts.planning import PlannedOccurrence
from workflows.contracts.records import ExecutionRow, Outcome, Pause
from workflows.domain import errands

UNTIL_SUCCESS: tuple[IncidentKind, ...] = (
    "dead_letter", "missed", "consecutive_failures", "lease_lost", "no_success",
)  # fmt: skip
"""Over with the job's next success."""
_SKIPS: tuple[IncidentKind, ...] = ("consecutive_skips",)
_PAUSED: tuple[IncidentKind, ...] = ("paused_after_failures",)
ASKED_FOR = ("paused", "deleted")
"""Reasons of a dead letter that is nobody's news."""
BY_THE_GATE = ("overlap", "queue_full")
INSTANT = timedelta(microseconds=1)

# -- what happens ----------------------------------------------------------------------------------


def ended(state: JobState, run: RunState, outcome: Outcome, reason: str | None, at: datetime) -> bool:
    """An execution has ended, and what it was in the way of has been counted. True: it paused the job."""
    key = run.occurrence.key
    if outcome == "dead_lettered" and reason not in ASKED_FOR:
        why = "its last attempt failed" if reason is None else reason
        _open(state, "dead_letter", at, f"{key} ended as a dead letter: {why}", key, again=True)
    if run.run_number == 0:  # beside the loop: what it means for the job, the job says at ``ended_beside``
        if outcome == "succeeded":
            _over(state, UNTIL_SUCCESS, at, f"{key} succeeded", key)
        return False
    if run.started_at is not None:
        _skipping(state, run, at)
    return _counted(state, outcome, reason, key, at)


def ended_beside(state: JobState, end: RunEnded) -> bool:
    """A run beside the loop has ended and is counted; what it told of is over with a later success.

    True: it paused the job.
    """
    for one in end.incidents:
        if _known(state, one.kind) is None:
            state.incidents = [*state.incidents, one]
        _next(state, max(one.since, end.ended_at))
    last = end.last_run
    return _counted(state, last.outcome, last.reason, last.key, end.ended_at)


def _counted(state: JobState, outcome: Outcome, reason: str | None, key: str, at: datetime) -> bool:
    if outcome == "succeeded":
        state.forgiven_failures = 0
        _over(state, UNTIL_SUCCESS, at, f"{key} succeeded", key)
        return False
    if outcome in ("cancelled", "replaced", "missed") or reason in ASKED_FOR:
        return False
    return _failing(state, key, at)


def _failing(state: JobState, key: str, at: datetime) -> bool:
    count, limit = state.stats.consecutive_failures, state.definition.alerts.consecutive_failures
    in_a_row = "1 execution" if count == 1 else f"{count} executions in a row"
    if limit is not None and count >= limit:
        _open(state, "consecutive_failures", at, f"{in_a_row} ended without success", key)
    pause_after = state.definition.pause_after
    has_more_to_run = bool(state.plan) or not state.plan_exhausted
    if (
        pause_after is None
        or state.pause is not None
        or state.deleted
        or not has_more_to_run
        or count - state.forgiven_failures < pause_after
    ):
        return False
    reason = f"{in_a_row} ended without success"
    state.pause = Pause(since=at, reason=reason, by="carillon")
    state.updated_at = max(state.updated_at, at)
    _open(state, "paused_after_failures", at, f"the job is paused: {reason}", key)
    return True


def _skipping(state: JobState, run: RunState, at: datetime) -> None:
    """Whether occurrences were skipped since the last run ended; the planner may have yet to say so."""
    left_to_planner = state.passed_until is not None and state.passed_reason == "overlap"
    if left_to_planner:
        if run.overran:
            _skips_are_too_many(state, at, run.occurrence.key)
        return
    if state.consecutive_skips == state.skips_at_last_end:
        state.consecutive_skips = state.skips_at_last_end = 0
        over = f"nothing was skipped during {run.occurrence.key}"
        _over(state, _SKIPS, at, over, run.occurrence.key, sure=run.overran)
    else:
        state.skips_at_last_end = state.consecutive_skips
        if run.overran:
            _skips_are_too_many(state, at, run.occurrence.key)


def stretch(state: JobState, row: ExecutionRow, added: int, at: datetime) -> None:
    """``added`` occurrences did not run; ``row`` is the whole stretch they belong to."""
    if row.outcome == "missed" and row.reason != "edited":
        _open(state, "missed", at, f"{_occurrences(row)} missed", row.key, again=True)
    elif row.outcome == "skipped" and row.reason in BY_THE_GATE:
        state.consecutive_skips += added
        limit = state.definition.alerts.consecutive_skips
        if limit is not None and state.consecutive_skips >= limit:
            _skips_are_too_many(state, at, row.key)


def _skips_are_too_many(state: JobState, at: datetime, key: str) -> None:
    count = state.consecutive_skips
    detail = "occurrences in a row were skipped: runs take longer than the schedule leaves them"
    _open(state, "consecutive_skips", at, f"{count} {detail}" if count else detail, key)


def _occurrences(row: ExecutionRow) -> str:
    first = rfc3339(row.scheduled_time)
    if row.count == 1 or row.last_scheduled_time is None:
        return f"the occurrence of {first} was"
    return f"{row.count} occurrences from {first} to {rfc3339(row.last_scheduled_time)} were"


def leases_lost(state: JobState, run: RunState, at: datetime) -> None:
    """A report, or the server, may tell of reaps that nobody was told of yet."""
    if run.reaps <= run.lost_leases:
        return
    run.lost_leases, key = run.reaps, run.occurrence.key
    times = "once" if run.reaps == 1 else f"{run.reaps} times"
    by = "its target fell silent, or " if state.definition.completion == "callback" else ""
    detail = f"the lease of {key} was lost {times}: {by}its worker died or was cut off in mid-run"
    _open(state, "lease_lost", at, detail, key, again=True)


def resumed(state: JobState, at: datetime) -> None:
    """A pause has ended: failures before it do not count towards the next, nor time without success."""
    state.forgiven_failures = state.stats.consecutive_failures
    state.watched_since = at
    _over(state, _PAUSED, at, "the job goes on")


def edited(state: JobState, was: timedelta | None, at: datetime) -> None:
    """``was``: ``no_success_for`` before the edit. Time counts from the edit that set it."""
    if was is None and state.definition.alerts.no_success_for is not None:
        state.watched_since = at


def gone(state: JobState, at: datetime) -> None:
    """The job is deleted: nobody else will say that its incidents are over."""
    _over(state, [one.kind for one in state.incidents], at, "the job was deleted")


# -- no success for a time -------------------------------------------------------------------------


def no_success_deadline(state: JobState) -> datetime | None:
    """When the job has gone without success for as long as it may; None: that cannot come now.

    Time counts from the last success, the creation, the edit that set the alert and the end of the
    last pause, whichever is latest. A job that is paused or completed has nothing to succeed with.
    """
    allowed = state.definition.alerts.no_success_for
    if allowed is None or state.pause is not None or state.deleted or state.completed_at is not None:
        return None
    if (known := _known(state, "no_success")) is not None:
        return known.since + FORGOTTEN_AFTER + timedelta(hours=1)  # nobody knows of it any more then
    return _without_success_since(state) + allowed


def no_success(state: JobState, at: datetime) -> None:
    """The deadline has come."""
    since = rfc3339(_without_success_since(state).replace(microsecond=0))
    _open(state, "no_success", at, f"no execution has succeeded since {since}")


def _without_success_since(state: JobState) -> datetime:
    known = (state.stats.last_success_at, state.watched_since)
    return max([state.created_at, *(one for one in known if one is not None)])


# -- an overrun, told while it lasts ---------------------------------------------------------------


def overrun(state: JobState, run: RunState, behind: Sequence[PlannedOccurrence]) -> Overrun | None:
    """What the holder of this run is to tell if it is active still when that many were skipped.

    ``behind``: the occurrences planned after it. None where they would wait for it, or where the
    run cannot last so long. A run that starts only when the next one is due already, as those do that an
    outage has put off, skips nothing: that one runs after it, and so on.
    """
    limit = state.definition.alerts.consecutive_skips
    if (
        limit is None
        or state.definition.concurrency.policy != "forbid"
        or run.occurrence.trigger != "schedule"
        or run.run_number == 0
        or _known(state, "consecutive_skips") is not None
    ):
        return None
    left = max(1, limit - state.consecutive_skips)
    if len(behind) < left:
        return None
    at = behind[left - 1].fires_at
    if at - run.fires_at > state.definition.max_duration:
        return None
    started_by = min(run.occurrence.fires_at + state.definition.catch_up.grace, behind[0].fires_at)
    if run.group_since is not None and run.group_since > started_by:
        return None
    return Overrun(at=at, started_by=started_by if run.group_since is None else None, skips=limit)


def overran(run: RunState, inp: AttemptInput, until: datetime) -> None:
    """An attempt was active until then: its holder may have told of an overrun."""
    told = inp.overrun
    if told is not None and told.at <= until and told.concerns(run.started_at):
        run.overran = True


# -- words -----------------------------------------------------------------------------------------


def _known(state: JobState, kind: IncidentKind) -> OpenIncident | None:
    return next((one for one in state.incidents if one.kind == kind), None)


def _open(state: JobState, kind: IncidentKind, at: datetime, detail: str, key: str | None = None, *,
          again: bool = False) -> None:  # fmt: skip
    known = _known(state, kind)
    if known is not None and at - known.since >= FORGOTTEN_AFTER:
        state.incidents, known = [one for one in state.incidents if one is not known], None
    if state.deleted or (known is not None and not again):
        return
    at = _next(state, at)
    if known is None:
        state.incidents = [*state.incidents, OpenIncident(kind=kind, since=at)]
    _say(state, _word(state, kind, at, detail, key, opens=True))


def _over(state: JobState, kinds: Collection[IncidentKind], at: datetime, detail: str,
          key: str | None = None, *, sure: bool = False) -> None:  # fmt: skip
    """``sure``: say so although the state knows of none; others may have opened it."""
    over = [kind for kind in kinds if sure or _known(state, kind) is not None]
    if over:
        at = _next(state, at)
        state.incidents = [one for one in state.incidents if one.kind not in over]
        for kind in over:
            _say(state, _word(state, kind, at, detail, key, opens=False))


def _next(state: JobState, at: datetime) -> datetime:
    """Words are told apart by their instants, and clocks of workers differ: always a later one."""
    state.told_at = at if state.told_at is None else max(at, state.told_at + INSTANT)
    return state.told_at


def _word(state: JobState, kind: IncidentKind, at: datetime, detail: str, key: str | None, *,
          opens: bool) -> IncidentWord:  # fmt: skip
    return IncidentWord(
        tenant=state.tenant,
        kind=kind,
        subject=state.ref,
        job=state.job,
        open=opens,
        detail=detail,
        key=key,
        at=at,
    )


def _say(state: JobState, word: IncidentWord) -> None:
    errands.add(state, TellIncident(word=word))
