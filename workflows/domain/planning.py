"""The next occurrences of a job, and what lies behind them: settled without walking over it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import islice

from workflows.contracts.planning import LeftBehind, Plan, PlanInput, PlannedOccurrence, Stretch
from workflows.domain.catch_up import later, missed_before, not_after
from workflows.domain.errors import RuleError
from workflows.domain.recurrence import Recurrence, compile_schedule
from workflows.domain.zones import tzdata_version

_TICK = timedelta(microseconds=1)
_UNBLOCKED_GRACE = timedelta(seconds=90)
"""What a run that was held up by another one gets at least, once it is planned again."""


def plan(request: PlanInput) -> Plan:
    """Answers a ``PlanInput``; pure. Raises ``RuleError`` when the schedule is not accepted (any more)."""
    left_behind = [_count_left_behind(request, left) for left in request.left_behind]
    return _plan(request).model_copy(update={"left_behind": left_behind})


def _count_left_behind(request: PlanInput, left: LeftBehind) -> Stretch | None:
    timing = left.timing
    try:
        recurrence = compile_schedule(
            timing.schedule,
            tenant=request.tenant,
            job=request.job,
            spread=timing.spread,
            starts_at=timing.starts_at,
            ends_at=timing.ends_at,
            except_=timing.except_,
        )
    except RuleError:  # it broke, and the edit may have been the cure
        return None
    return _stretch(recurrence, left.after, left.until, frozenset(left.settled))


def _plan(request: PlanInput) -> Plan:
    """The occurrences later than ``after`` are cut into ``passed`` (during a pause), ``missed`` (too
    late to run), ``dropped`` (no room in the line) and ``occurrences`` (due or future, at most
    ``limit``), in this order.
    """
    recurrence = compile_schedule(
        request.schedule,
        tenant=request.tenant,
        job=request.job,
        spread=request.spread,
        starts_at=request.starts_at,
        ends_at=request.ends_at,
        except_=request.except_,
    )
    if request.remaining is not None and request.remaining <= 0:
        return Plan(cursor=request.after, exhausted=True, tzdata=tzdata_version())
    spread = timedelta(seconds=recurrence.offset)
    cursor, settled = request.after, frozenset(request.settled)
    passed = missed = dropped = None
    if request.passed_until is not None:
        passed = _stretch(recurrence, cursor, later(request.passed_until, -spread), settled)
        cursor = cursor if passed is None else passed.last
    held_up = _held_up(request, recurrence, cursor)
    if (missed_until := _missed_until(request, recurrence, held_up)) is not None:
        missed = _stretch(recurrence, cursor, missed_until, settled)
        cursor = cursor if missed is None else missed.last
    if request.overdue_first and (ahead := _before_line(request, recurrence, cursor, held_up, settled)):
        return Plan(
            occurrences=ahead,
            passed=passed,
            missed=missed,
            cursor=cursor,
            before_line=True,
            tzdata=tzdata_version(),
        )
    if request.queue and held_up is not None:
        dropped = _stretch(recurrence, cursor, later(held_up, -_TICK), settled)
        cursor = cursor if dropped is None else dropped.last
    occurrences, exhausted = _occurrences(request, recurrence, cursor, held_up)
    return Plan(
        occurrences=occurrences,
        passed=passed,
        missed=missed,
        dropped=dropped,
        cursor=cursor,
        exhausted=exhausted,
        tzdata=tzdata_version(),
    )


def _stretch(
    recurrence: Recurrence, after: datetime, until: datetime, settled: Collection[datetime]
) -> Stretch | None:
    """All occurrences later than ``after`` and not later than ``until`` but the ``settled`` ones."""
    first, last = recurrence.after(after), recurrence.last(until)
    while first is not None and first in settled:
        first = recurrence.after(first)
    while last is not None and last in settled:
        last = recurrence.before(last)
    if first is None or last is None or first > last:
        return None
    count = recurrence.count(later(first, -_TICK), last)
    left = count.total - len([one for one in settled if first <= one <= last])
    return Stretch(count=max(left, 1), first=first, last=last, counted_all=count.complete)


def _held_up(request: PlanInput, recurrence: Recurrence, cursor: datetime) -> datetime | None:
    """The oldest due occurrence that waits because runs of the job held it up, and has room in the line."""
    since = _nominal(request.blocked_since, recurrence)
    if since is None:
        return None
    until = request.now if request.blocked_until is None else later(request.blocked_until, -_TICK)
    oldest = recurrence.last(later(min(until, request.now), -timedelta(seconds=recurrence.offset)))
    if oldest is None or oldest <= cursor or oldest < since:
        return None
    for _ in range(request.queue - 1):
        older = recurrence.before(oldest)
        if older is None or older <= cursor or older < since:
            break
        oldest = older
    return oldest


def _before_line(
    request: PlanInput,
    recurrence: Recurrence,
    cursor: datetime,
    held_up: datetime | None,
    settled: Collection[datetime],
) -> list[PlannedOccurrence]:
    """What is older than the line, if there is one: it was overdue before, and is not dropped for it."""
    if not request.queue or held_up is None or request.blocked_since is None:
        return []
    planned, _ = _occurrences(request, recurrence, cursor, None)
    return [
        one for one in planned if one.fires_at < request.blocked_since and one.scheduled_time not in settled
    ]


def _nominal(instant: datetime | None, recurrence: Recurrence) -> datetime | None:
    """What fires at ``instant`` has this scheduled time."""
    return None if instant is None else later(instant, -timedelta(seconds=recurrence.offset))


def _missed_until(request: PlanInput, recurrence: Recurrence, held_up: datetime | None) -> datetime | None:
    """Occurrences up to this nominal instant do not run."""
    before = missed_before(request.catch_up, recurrence, request.now)
    if before is not None and held_up is not None:
        since = _nominal(request.blocked_since, recurrence) if request.queue else None
        before = min(before, held_up if since is None else since)
    until = None if before is None else later(before, -_TICK)
    if request.late_until is None:
        return until
    return request.late_until if until is None else max(until, request.late_until)


def _occurrences(
    request: PlanInput, recurrence: Recurrence, cursor: datetime, held_up: datetime | None
) -> tuple[list[PlannedOccurrence], bool]:
    limit = request.limit if request.remaining is None else min(request.limit, request.remaining)
    found = list(islice(recurrence.forward(cursor), limit + 1))
    planned = []
    for n, scheduled_time in enumerate(found[:limit]):
        fires_at = recurrence.fires_at(scheduled_time)
        bound = not_after(
            request.catch_up,
            fires_at,
            recurrence.fires_at(found[n + 1]) if n + 1 < len(found) else None,
            once=recurrence.kind == "once",
        )
        waited = held_up is not None and scheduled_time >= held_up and fires_at <= request.now
        if request.overdue_first and request.blocked_until is not None:
            waited = waited and fires_at < request.blocked_until  # what is later is overdue, or in time
        if waited and request.queue:
            bound = None
        elif waited and bound is not None:
            bound = max(bound, later(request.now, max(request.catch_up.grace, _UNBLOCKED_GRACE)))
        planned.append(
            PlannedOccurrence(
                scheduled_time=scheduled_time, fires_at=fires_at, not_after=bound, waited=waited
            )
        )
    return planned, len(found) <= limit or len(planned) == request.remaining
