"""``carillon preview``: when a schedule would run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table

from infra.temporal.errors import SetupError
from workflows.contracts.base import rfc3339
from workflows.contracts.schedule import Schedule
from workflows.domain.errors import RuleError
from workflows.domain.preview import Preview, preview


def read_schedule(text: str, timezone: str | None) -> Schedule:
    """Cron text (five fields or ``@daily``), an ISO 8601 duration (``every``) or an instant (``at``)."""
    for field, kind in (("every", timedelta), ("at", datetime)):
        if text[:1] == "P" or (field == "at" and text[:4].isdigit() and text[4:5] == "-"):
            try:
                value = TypeAdapter[timedelta | datetime](kind).validate_python(text)
            except ValidationError:
                continue
            return Schedule.model_validate({field: value, "timezone": timezone})
    return Schedule(cron=text, timezone=timezone)


def show(text: str, *, timezone: str | None, default_timezone: str, count: int, console: Console) -> None:
    """Prints the next occurrences. Raises SetupError where a creation would refuse the schedule."""
    try:
        found = preview(
            read_schedule(text, timezone),
            now=datetime.now(UTC),
            count=count,
            default_timezone=default_timezone,
        )
    except RuleError as error:
        raise SetupError(f"{text!r}: {error}", code=error.code) from error
    console.print(f"{found.description} ({found.kind})", highlight=False, markup=False)
    console.print(_table(found))


def _table(found: Preview) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("UTC", no_wrap=True)
    table.add_column(f"Local ({found.timezone})", no_wrap=True)
    table.add_column("Note", overflow="fold")
    for occurrence in found.occurrences:
        table.add_row(rfc3339(occurrence.scheduled_time), occurrence.local, occurrence.note or "")
    return table
