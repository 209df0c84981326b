"""A job as its index row shows it, and the columns that are made from a definition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import sqlalchemy as sa

from infra.database.types import clean
from workflows.contracts.definition import JobDefinition
from workflows.contracts.records import LastRun, Pause, Stats

StoredStatus = Literal["reserved", "active", "paused", "completed", "deleted"]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One generation of a job id. ``change`` is 0 while it is reserved; instants are UTC."""

    tenant: str
    ref: str
    job: str
    generation: int
    revision: int
    change: int
    status: StoredStatus
    definition: JobDefinition
    pause: Pause | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    next_fires_at: datetime | None
    run_number: int
    stats: Stats
    last_run: LastRun | None
    freed: bool
    """A reservation that was given up: its status is ``deleted`` and it never was a job."""

    @property
    def is_present(self) -> bool:
        """Whether the index has it as a job that is there, be it lost to Temporal."""
        return self.status not in ("reserved", "deleted")


def from_row(row: sa.Row[Any]) -> StoredJob:
    """Read all columns of ``jobs``."""
    return StoredJob(
        tenant=row.tenant,
        ref=row.ref,
        job=row.job,
        generation=row.generation,
        revision=row.revision,
        change=row.change,
        status=row.status,
        definition=JobDefinition.model_validate_json(row.definition),
        pause=None if row.pause is None else Pause.model_validate_json(row.pause),
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        next_fires_at=row.next_fires_at,
        run_number=row.run_number,
        stats=Stats() if row.stats is None else Stats.model_validate_json(row.stats),
        last_run=None if row.last_run is None else LastRun.model_validate_json(row.last_run),
        freed=row.freed,
    )


def definition_columns(definition: JobDefinition) -> dict[str, str | None]:
    """The definition as JSON, and what lists search of it.

    The JSON is text in both databases: nothing inside it is asked for, and text keeps what ``jsonb``
    refuses.
    """
    return {
        "definition": definition.model_dump_json(by_alias=True),
        "labels": encode_labels(definition.labels),
        "description": fold(definition.description),
        "target_type": definition.target.type,
        "target_address": getattr(definition.target, "url", ""),
        "group_name": definition.concurrency.group,
    }


def encode_labels(labels: dict[str, str]) -> str:
    """``&team=billing&tier=1&``, quoted, so that one label is found as a substring; empty: no labels."""
    return "".join(f"&{_label(name, value)}" for name, value in sorted(labels.items())) + "&" * bool(labels)


def label_needle(name: str, value: str) -> str:
    """The substring of :func:`encode_labels` that says a job has this label."""
    return f"&{_label(name, value)}&"


def _label(name: str, value: str) -> str:
    return f"{quote(clean(name), safe='')}={quote(clean(value), safe='')}"


def fold(text: str) -> str:
    """What two texts that differ in case only have in common, in any script (SQLite folds ASCII only)."""
    return clean(text).casefold()
