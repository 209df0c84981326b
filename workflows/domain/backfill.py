"""Backfills of a job: whose turn it is, what is begun, and what became of it (docs/backfill.md).

A backfill is a cursor over occurrences of the past. Pages of them come from an activity; here they are
taken one by one, put back, counted. Regular occurrences go first. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from workflows.contracts import names
from workflows.contracts.backfill import (
    BACKFILLS_KEPT,
    PAGE,
    RAN_KEPT,
    Backfill,
    BackfillPage,
    BackfillRequest,
    PageAsked,
    Paged,
    Timing,
)
from workflows.contracts.definition import JobDefinition
from workflows.contracts.job import BesideRun, JobState, RunState
from workflows.contracts.records import Outcome
from workflows.domain import active, gate, overlap
from workflows.domain.gate import Decision
from workflows.domain.unwritten import NOTHING, Told
from workflows.domain.waiting import alive_keys

EVERY_TURNS = 10
"""A backfill gets at least every tenth run of the loop, however busy its schedule is."""
_MILLISECOND = timedelta(milliseconds=1)


# -- the life of a backfill ------------------------------------------------------------------------


def accept(state: JobState, request: BackfillRequest, at: datetime) -> Backfill:
    state.backfill_number += 1
    one = Backfill(
        number=state.backfill_number,
        from_=request.from_,
        to=request.to,
        only=request.only,
        max_concurrent=request.max_concurrent,
        by=request.actor.by,
        at=at,
        operation=request.actor.operation,
        past_end=request.past_end,
        cursor=request.from_,
        total=request.total,
        turned_at=state.turns,
    )
    state.backfills = [*opened(state), one, *_ended(state)]
    return one


def opened(state: JobState) -> list[Backfill]:
    """Those under way, oldest first."""
    return [one for one in state.backfills if one.status == "running"]


def _ended(state: JobState) -> list[Backfill]:
    return [one for one in state.backfills if one.status != "running"]


def find(state: JobState, number: int | None) -> Backfill | None:
    return next((one for one in state.backfills if one.number == number), None)


def cancel(state: JobState, one: Backfill, reason: str, now: datetime) -> None:
    """Nothing of it begins any more; what has begun is counted when it ends."""
    if one.status == "running":
        _end(state, one, "cancelled", reason, now)


def cancel_all(state: JobState, reason: str, now: datetime) -> None:
    for one in opened(state):
        cancel(state, one, reason, now)


def _end(state: JobState, one: Backfill, status: str, reason: str | None, now: datetime) -> None:
    one.status = "done" if status == "done" else "cancelled"
    one.reason, one.ended_at, one.page, one.ran = reason, now, [], {}
    newest = sorted(_ended(state), key=lambda ended: ended.number)[-BACKFILLS_KEPT:]
    state.backfills = [*opened(state), *newest]


def _end_if_done(state: JobState, one: Backfill, now: datetime) -> None:
    if one.status == "running" and one.all_paged and not one.page and running(state, one) == 0:
        one.total = max(one.total, one.started)
        _end(state, one, "done", None, now)


def running(state: JobState, one: Backfill) -> int:
    """Its executions that are alive."""
    in_loop = state.run is not None and state.run.backfill == one.number
    return in_loop + len([row for row in state.beside if row.backfill == one.number])


def remaining(one: Backfill) -> int:
    """How many have not begun; of a cancelled one, how many never will."""
    return 0 if one.status == "done" else max(one.total - one.started, 0)


def shown(one: Backfill) -> Backfill:
    """What readers see: the counts, without what the loop needs."""
    return one.model_copy(update={"page": [], "ran": {}, "timing": None})


# -- pages -----------------------------------------------------------------------------------------


def timing_of(definition: JobDefinition) -> Timing:
    return Timing(
        schedule=definition.schedule,
        spread=definition.spread,
        starts_at=definition.starts_at,
        ends_at=definition.ends_at,
        except_=definition.except_,
    )


def keep_timing(state: JobState) -> None:
    """An edit is about to change when the job runs: what was asked for is what was counted."""
    for one in opened(state):
        one.timing = one.timing or timing_of(state.definition)


def wants_page(state: JobState, one: Backfill) -> bool:
    """Early enough to have the next page when this one is used up; never beyond what is settled."""
    if state.deleted or state.pause is not None or one.status != "running" or one.all_paged:
        return False
    return len(one.page) <= PAGE // 2 and (not one.asked or one.cursor <= _settled(state, one))


def _settled(state: JobState, one: Backfill) -> datetime:
    """Up to where the past is no matter of the loop's: all of it, once nothing of the schedule is to come."""
    run = state.run
    to_come = run is not None and active.is_unserved(run) and active.is_planned(run.occurrence.trigger)
    over = state.plan_exhausted and not state.plan and not to_come
    return max(state.cursor, one.to) if one.past_end and over else state.cursor


def page_asked(state: JobState, one: Backfill) -> PageAsked:
    return PageAsked(
        tenant=state.tenant,
        job=state.job,
        ref=state.ref,
        timing=one.timing or timing_of(state.definition),
        from_=one.cursor,
        to=one.to,
        settled=_settled(state, one),
        only=one.only,
    )


_SUCCEEDED, _NEVER = 0, -1
"""Of ``Backfill.ran``."""


def adopt(state: JobState, number: int, asked: PageAsked, page: BackfillPage,
          told: Mapping[str, Told], now: datetime) -> None:  # fmt: skip
    """Take a page over, but for what has succeeded as far as ``told`` knows."""
    one = find(state, number)
    if one is None or one.status != "running" or one.cursor != asked.from_:
        return
    one.page = [*one.page, *_still_missing(state, one, page.occurrences, told)]
    one.cursor, one.asked, one.all_paged, one.ran = page.cursor, True, page.last, {}
    _end_if_done(state, one, now)


def _still_missing(
    state: JobState, one: Backfill, page: list[Paged], told: Mapping[str, Told]
) -> list[Paged]:
    if one.only == "all":
        return page
    missing = []
    for entry in page:
        key = names.scheduled_key(state.tenant, state.ref, entry.at)
        known, ran = told.get(key, NOTHING), one.ran.get(key, _NEVER)
        if not known.succeeded and ran != _SUCCEEDED:
            attempt = max(entry.attempt, known.attempts + 1, ran + 1)
            missing.append(entry.model_copy(update={"attempt": attempt}))
    return missing


def happened(state: JobState, key: str, outcome: Outcome, attempt: int, now: datetime) -> None:
    """An execution has ended, with this attempt at most: what waits for its turn under the same occurrence
    is not missing any more, or goes on behind it."""
    own = names.occurrence_key(key)
    for one in opened(state):
        if one.only == "all" or (outcome != "succeeded" and key != own):
            continue
        succeeded = outcome == "succeeded" or one.ran.pop(own, _NEVER) == _SUCCEEDED
        one.ran[own] = _SUCCEEDED if succeeded else attempt
        one.ran = dict(list(one.ran.items())[-RAN_KEPT:])
        one.page = _still_missing(state, one, one.page, {})
        _end_if_done(state, one, now)


# -- turns -----------------------------------------------------------------------------------------


def turn(state: JobState, now: datetime) -> Backfill | None:
    """The backfill from which the loop takes its next run; None: the schedule goes first.

    It does when its next occurrence is nearer than the last run took, but for every tenth run.
    """
    if state.deleted or state.pause is not None or (not state.plan and not state.plan_exhausted):
        return None
    waiting = [one for one in opened(state) if one.page and _has_room(state, one)]
    if not waiting:
        return None
    if gate.admit(state.definition.concurrency, active.beside(state)) not in (Decision.RUN, Decision.BESIDE):
        return None
    due = next((one.fires_at for one in state.plan if one.scheduled_time not in state.skips), None)
    last = max(one.turned_at for one in opened(state))
    if due is None or due - now > state.last_run_ms * _MILLISECOND or state.turns - last >= EVERY_TURNS - 1:
        return min(waiting, key=lambda one: (one.turned_at, one.number))
    return None


def _has_room(state: JobState, one: Backfill) -> bool:
    """Whether the loop may run the next of it: those that are left beside the loop count."""
    return not state.as_of_0_4 or running(state, one) < one.max_concurrent


def beside_turn(state: JobState) -> Backfill | None:
    """The backfill of which a run may start beside the one the loop has (policy ``allow``).

    One place is left free for the schedule.
    """
    concurrency = state.definition.concurrency
    if concurrency.policy != "allow" or state.deleted or state.pause is not None or state.run is None:
        return None
    if 1 + len(active.beside(state)) + 1 >= concurrency.limit:
        return None
    waiting = [one for one in opened(state) if one.page and running(state, one) < one.max_concurrent]
    return min(waiting, key=lambda one: (running(state, one), one.number), default=None)


def take(state: JobState, one: Backfill, now: datetime) -> Paged | None:
    """The next occurrence to begin; None: none is left of this page.

    One that is alive under its own key, as a redrive say, is not started a second time.
    """
    alive = alive_keys(state)
    while one.page:
        entry, *one.page = one.page
        if key_of(state, one, entry) not in alive:
            if one.begun_until is None or one.begun_until < entry.at:
                one.started += 1
                one.begun_until = entry.at
            return entry
    _end_if_done(state, one, now)
    return None


def key_of(state: JobState, one: Backfill, entry: Paged) -> str:
    own = names.scheduled_key(state.tenant, state.ref, entry.at)
    return own if one.only == "missing" else names.backfill_key(own, one.number)


def give_due_its_time(state: JobState, now: datetime) -> None:
    """A backfill is let in front of what is due: that waits by our own doing and is not late for it.

    What was overdue before, where that is kept apart from what waits, stays so.
    """
    overdue = now - state.definition.catch_up.grace if overlap.keeps_line(state) else None
    state.plan = [
        due.model_copy(update={"not_after": None, "waited": overdue is None or due.fires_at >= overdue})
        if due.fires_at <= now and (due.not_after is None or due.not_after >= now)
        else due
        for due in state.plan
    ]


# -- what became of it -----------------------------------------------------------------------------


def put_back(state: JobState, run: RunState) -> None:
    """A run that was not served waits for another turn, unless its backfill is over."""
    one = find(state, run.backfill)
    if one is None:
        return
    if one.status != "running":
        one.cancelled += 1
        return
    entry = Paged(at=run.occurrence.scheduled_time, attempt=run.attempt)
    one.page = sorted([entry, *one.page], key=lambda waiting: waiting.at)


def give_back(state: JobState, row: BesideRun) -> None:
    """A run beside the loop was not served, as :func:`put_back`. The next one needs another name than it."""
    one = find(state, row.backfill)
    if one is None or one.status != "running":
        ended(state, row.backfill, "cancelled", row.fires_at)
        return
    entry = Paged(at=row.scheduled_time, attempt=names.first_attempt_of(row.name) + 1)
    one.page = sorted([entry, *one.page], key=lambda waiting: waiting.at)


def ended(state: JobState, number: int | None, outcome: Outcome, now: datetime) -> None:
    """An execution of it has ended for good."""
    one = find(state, number)
    if one is None:
        return
    if outcome == "succeeded":
        one.succeeded += 1
    elif outcome == "dead_lettered":
        one.dead_lettered += 1
    else:
        one.cancelled += 1
    _end_if_done(state, one, now)
