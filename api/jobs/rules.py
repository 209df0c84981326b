"""What the domain says of a definition: whether it holds, and when it will run next.

Nothing is decided here; the rules are in ``workflows.domain`` and with the target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from itertools import islice

from activities.targets.url import check_url
from api.jobs.answers import NextRun
from api.problems import FieldError, Kind, ProblemError
from infra.settings import Settings
from workflows.contracts.definition import JobDefinition
from workflows.contracts.records import Pause
from workflows.domain.errors import RuleError
from workflows.domain.headers import check_headers
from workflows.domain.recurrence import Recurrence, compile_schedule
from workflows.domain.resolve import resolve

NEXT_RUNS = 5
_TICK = timedelta(microseconds=1)


def settle(
    definition: JobDefinition,
    *,
    tenant: str,
    job: str,
    now: datetime,
    settings: Settings,
    stored: JobDefinition | None = None,
) -> JobDefinition:
    """The definition to store: checked, its schedule resolved.

    ``stored`` is what the job has, for an edit: what stays as it is, is not judged anew. Raises one
    422 with everything that is wrong.
    """
    wrong: list[RuleError] = []
    resolved = definition.schedule

    def check(rule: Callable[[], None]) -> None:
        try:
            rule()
        except RuleError as error:
            wrong.append(error)

    def schedule() -> None:
        nonlocal resolved
        resolved = resolve(
            definition.schedule,
            now=now,
            default_timezone=settings.default_timezone,
            tenant=tenant,
            job=job,
            spread=definition.spread,
            starts_at=definition.starts_at,
            ends_at=definition.ends_at,
            except_=definition.except_,
            stored=stored.schedule if stored else None,
        )

    check(schedule)
    if stored is None or definition.target != stored.target:
        check(lambda: check_url(definition.target.url, settings.allow_networks))
        check(lambda: check_headers(definition.target.headers))
    if definition.completion == "callback":
        check(lambda: _check_callback(settings))
    if wrong:
        raise broken(wrong)
    return definition.model_copy(update={"schedule": resolved})


def _check_callback(settings: Settings) -> None:
    missing = [
        name
        for name, value in (
            ("CARILLON_PUBLIC_URL", settings.public_url),
            ("CARILLON_SIGNING_SECRET", settings.signing_secret.get_secret_value()),
        )
        if not value
    ]
    if missing:
        raise RuleError(
            f"Completion by callback needs {' and '.join(missing)} to be set for the API and its workers: "
            "targets are told where to report.",
            code="no_public_url",
            pointer="/completion",
        )


def broken(rules: list[RuleError]) -> ProblemError:
    """One problem for several broken rules; ``code`` is the first one's."""
    errors = [FieldError(pointer=rule.pointer, detail=str(rule)) for rule in rules]
    return ProblemError(Kind.INVALID, errors[0].detail, errors=errors, code=rules[0].code)


def recurrence_of(definition: JobDefinition, *, tenant: str, job: str) -> Recurrence:
    return compile_schedule(
        definition.schedule,
        tenant=tenant,
        job=job,
        spread=definition.spread,
        starts_at=definition.starts_at,
        ends_at=definition.ends_at,
        except_=definition.except_,
    )


def next_runs(
    definition: JobDefinition,
    *,
    tenant: str,
    job: str,
    now: datetime,
    cursor: datetime | None = None,
    pause: Pause | None = None,
    scheduled_runs: int = 0,
    skips: Collection[datetime] = (),
    count: int = NEXT_RUNS,
) -> list[NextRun]:
    """The next occurrences but ``skips``, made from the definition alone, so that no worker is needed.

    None of a job that is paused without an end: nobody knows when it goes on.
    """
    if pause is not None and pause.until is None:
        return []
    left = count if definition.max_runs is None else min(count, definition.max_runs - scheduled_runs)
    if left <= 0:
        return []
    try:
        recurrence = recurrence_of(definition, tenant=tenant, job=job)
    except RuleError:
        return []  # stored under older rules; the job itself says so when it plans
    paused_up_to = pause.until - _TICK if pause is not None and pause.until is not None else None
    after = max(moment for moment in (now, cursor, paused_up_to) if moment is not None)
    return [
        NextRun(
            scheduled_time=instant,
            fires_at=recurrence.fires_at(instant),
            local=recurrence.local(instant).isoformat(),
        )
        for instant in islice((at for at in recurrence.forward(after) if at not in skips), left)
    ]
