"""A schedule as a client writes it, checked and made independent of when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from workflows.contracts.definition import EXCEPT_MAX
from workflows.contracts.schedule import PAST_ALLOWED, ExceptWindow, Schedule
from workflows.domain.cron import MAX_EXPRESSIONS, hash_seed, parse, parse_all
from workflows.domain.errors import RuleError
from workflows.domain.recurrence import FIRST, LAST, compile_schedule
from workflows.domain.recurrence_cron import LONGEST_GAP
from workflows.domain.zones import Change, Zone, from_seconds, to_seconds, year_of, zone

MAX_SPREAD = timedelta(days=7)
_FORMS = ("cron", "every", "at", "in")
_SECOND = timedelta(seconds=1)


def resolve(
    schedule: Schedule,
    *,
    now: datetime,
    default_timezone: str | None = None,
    tenant: str = "",
    job: str = "",
    spread: timedelta | None = None,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    except_: Sequence[ExceptWindow] = (),
    stored: Schedule | None = None,
) -> Schedule:
    """The schedule to store, or ``RuleError`` with the pointer of what is wrong.

    ``in`` becomes ``at``; an absent ``anchor`` becomes ``now``, without its fraction (so that the
    anchor itself is not an occurrence to come); naive times become UTC; the tenant's default zone
    is written in where a cron or an interval names none, and a zone is kept as entered.

    ``stored`` is the schedule the job has, if it has one. When the result equals it, time may have
    passed: neither a past ``at`` nor a schedule that has run its course is refused. An interval
    without an anchor keeps the stored one if nothing else changes.
    """
    form = _form(schedule)
    _refuse_foreign_fields(schedule, form)
    where = _zone(schedule, default_timezone)
    resolved = _resolved(schedule, form, now, where, default_timezone, tenant, job)
    if stored is not None and form == "every" and schedule.anchor is None:
        kept = resolved.model_copy(update={"anchor": stored.anchor})
        resolved = kept if kept == stored else resolved
    unchanged = resolved == stored
    if not unchanged and resolved.at is not None and resolved.at < now - PAST_ALLOWED:
        raise RuleError(
            f"it is in the past: {_shown(resolved.at)}; a one-off may lie at most 60 seconds back",
            code="at_in_the_past",
            pointer="/schedule/at",
        )
    _check_bounds(spread, starts_at, ends_at)
    check_except(except_, tenant=tenant, job=job)
    recurrence = compile_schedule(
        resolved,
        tenant=tenant,
        job=job,
        default_timezone=default_timezone,
        spread=spread,
        starts_at=starts_at,
        ends_at=ends_at,
        except_=except_,
    )
    if (recurrence.first() if unchanged or form in ("at", "in") else recurrence.after(now)) is None:
        raise _no_occurrence(resolved, now, starts_at, ends_at, except_)
    return resolved


def initial_cursor(schedule: Schedule, accepted: datetime) -> datetime:
    """The ``after`` of a job's first plan: what lies behind it is not planned.

    The instant of acceptance; for a one-off that lies up to 60 s in the past, just before it.
    """
    if schedule.at is not None and schedule.at <= accepted:
        return schedule.at - _SECOND
    return accepted


def check_except(except_: Sequence[ExceptWindow], *, tenant: str = "", job: str = "") -> None:
    """Each entry has exactly one form, and a form that holds."""
    if len(except_) > EXCEPT_MAX:
        raise RuleError(f"at most {EXCEPT_MAX} exceptions", code="except_too_many", pointer="/except")
    if sum(entry.cron is not None for entry in except_) > MAX_EXPRESSIONS:
        raise RuleError(
            f"at most {MAX_EXPRESSIONS} exceptions by cron", code="except_too_many", pointer="/except"
        )
    seed = hash_seed(tenant, job)
    for n, entry in enumerate(except_):
        pointer = f"/except/{n}"
        window = entry.from_ is not None or entry.to is not None
        if window + (entry.date is not None) + (entry.cron is not None) != 1:
            raise RuleError(
                "an exception is exactly one of `from` with `to`, `date`, or `cron`",
                code="except_form",
                pointer=pointer,
            )
        if window and (entry.from_ is None or entry.to is None):
            missing = "from" if entry.from_ is None else "to"
            raise RuleError(
                f"a window has both ends; add `{missing}`",
                code="except_window",
                pointer=f"{pointer}/{missing}",
            )
        if entry.from_ is not None and entry.to is not None and entry.to <= entry.from_:
            raise RuleError("`to` must be later than `from`", code="except_window", pointer=f"{pointer}/to")
        if entry.cron is not None:
            parse(entry.cron, seed=seed, pointer=f"{pointer}/cron")


def _form(schedule: Schedule) -> str:
    given = [
        form
        for form, value in zip(
            _FORMS, (schedule.cron, schedule.every, schedule.at, schedule.in_), strict=True
        )
        if value is not None
    ]
    if len(given) == 1:
        return given[0]
    found = "none is given" if not given else f"{' and '.join(f'`{form}`' for form in given)} are given"
    raise RuleError(
        f"a schedule has exactly one of `cron`, `every`, `at` and `in`; {found}",
        code="schedule_form",
        pointer="/schedule",
    )


def _refuse_foreign_fields(schedule: Schedule, form: str) -> None:
    if schedule.anchor is not None and form != "every":
        raise _foreign("anchor", form, "it belongs to `every`")
    if form in ("every", "in"):
        if schedule.gap != "shift":
            raise _foreign("gap", form, "elapsed time knows no clock changes")
        if schedule.fold != "first":
            raise _foreign("fold", form, "elapsed time knows no clock changes")
    if form == "at" and schedule.fold == "both":
        raise _foreign("fold", form, "a one-off runs once; write 'first' or 'last'")


def _foreign(name: str, form: str, why: str) -> RuleError:
    return RuleError(
        f"`{name}` has no meaning beside `{form}`: {why}", code="schedule_field", pointer=f"/schedule/{name}"
    )


def _zone(schedule: Schedule, default_timezone: str | None) -> Zone:
    if schedule.timezone is not None:
        return zone(schedule.timezone)
    return zone(default_timezone or "UTC")


def _resolved(
    schedule: Schedule,
    form: str,
    now: datetime,
    where: Zone,
    default_timezone: str | None,
    tenant: str,
    job: str,
) -> Schedule:
    if form == "cron":
        assert schedule.cron is not None
        parse_all(schedule.cron, seed=hash_seed(tenant, job))
        return schedule.model_copy(update={"timezone": schedule.timezone or default_timezone})
    if form == "every":
        assert schedule.every is not None
        if schedule.every < _SECOND:
            raise RuleError(
                "`every` is at least one second", code="every_too_short", pointer="/schedule/every"
            )
        anchor = now.astimezone(UTC).replace(microsecond=0)
        if schedule.anchor is not None:
            anchor = _instant(schedule.anchor, schedule, where, "/schedule/anchor")
        return schedule.model_copy(
            update={"anchor": anchor, "timezone": schedule.timezone or default_timezone}
        )
    if form == "in":
        assert schedule.in_ is not None
        try:
            at = now.astimezone(UTC) + schedule.in_
        except OverflowError:
            raise _out_of_range("/schedule/in") from None
        return schedule.model_copy(update={"in_": None, "at": _whole(at, "/schedule/in")})
    assert schedule.at is not None
    return schedule.model_copy(update={"at": _instant(schedule.at, schedule, where, "/schedule/at")})


def _instant(given: datetime, schedule: Schedule, where: Zone, pointer: str) -> datetime:
    """An instant in UTC and whole seconds: an offset decides, else the wall clock of the zone."""
    if given.tzinfo is not None:
        return _whole(given, pointer)
    if schedule.timezone is None:
        raise RuleError(
            f"{given.isoformat()} names no zone; end it with 'Z' or an offset, or add `timezone`",
            code="time_without_zone",
            pointer=pointer,
        )
    wall = to_seconds(given.replace(tzinfo=UTC))
    if not FIRST <= wall <= LAST:
        raise _out_of_range(pointer)
    if (gap := where.gap_at(wall)) is not None and (schedule.gap == "skip" or gap.gap > LONGEST_GAP):
        raise RuleError(_missing(given, where, gap), code="time_does_not_exist", pointer=pointer)
    return from_seconds(where.instant(wall, last=schedule.fold == "last"))


def _missing(given: datetime, where: Zone, gap: Change) -> str:
    forward = from_seconds(gap.instant + gap.after)
    return (
        f"{given.isoformat()} does not exist in {where.name}: the clock goes forward to "
        f"{forward:%Y-%m-%dT%H:%M:%S}; write that, or an offset"
    )


def _whole(instant: datetime, pointer: str) -> datetime:
    seconds = to_seconds(instant)
    if not FIRST <= seconds <= LAST:
        raise _out_of_range(pointer)
    return from_seconds(seconds)


def _out_of_range(pointer: str) -> RuleError:
    first, last = year_of(FIRST), year_of(LAST)
    return RuleError(
        f"a schedule lives between the years {first} and {last}", code="time_out_of_range", pointer=pointer
    )


def _check_bounds(spread: timedelta | None, starts_at: datetime | None, ends_at: datetime | None) -> None:
    if spread is not None and not timedelta(0) <= spread <= MAX_SPREAD:
        raise RuleError(
            f"`spread` is between 0 and {MAX_SPREAD.days} days", code="spread_out_of_range", pointer="/spread"
        )
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        raise RuleError(
            "`ends_at` must be later than `starts_at`", code="bounds_reversed", pointer="/ends_at"
        )


def _no_occurrence(
    schedule: Schedule,
    now: datetime,
    starts_at: datetime | None,
    ends_at: datetime | None,
    except_: Sequence[ExceptWindow],
) -> RuleError:
    """Names the bound that leaves nothing over."""
    code, reach = "no_occurrence", "it would never run"
    if ends_at is not None and ends_at < now:
        return RuleError(f"{reach}: `ends_at` is in the past", code=code, pointer="/ends_at")
    if schedule.at is not None and starts_at is not None and schedule.at < starts_at:
        return RuleError(f"{reach}: `at` lies before `starts_at`", code=code, pointer="/starts_at")
    if schedule.at is not None and ends_at is not None and schedule.at > ends_at:
        return RuleError(f"{reach}: `at` lies after `ends_at`", code=code, pointer="/ends_at")
    if except_:
        return RuleError(
            f"{reach}: `except` and the bounds leave no occurrence over", code=code, pointer="/except"
        )
    if starts_at is not None or ends_at is not None:
        return RuleError(
            f"{reach}: no occurrence lies within `starts_at` and `ends_at`",
            code=code,
            pointer="/ends_at" if ends_at is not None else "/starts_at",
        )
    return RuleError(f"{reach}: no occurrence lies ahead", code=code, pointer="/schedule")


def _shown(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
