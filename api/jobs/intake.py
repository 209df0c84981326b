"""From the document of a POST or a PUT to what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.auth.principal import Principal
from api.definitions import check_definition, parse_model
from api.jobs.creation import NewJob
from api.jobs.rules import settle
from api.requests import JobRequest
from api.unbuilt import refuse_unbuilt
from infra.database.jobs import id_of_key, random_id
from infra.settings import Settings
from workflows.contracts.definition import JobDefinition


@dataclass(frozen=True, slots=True)
class Intake:
    """A definition in good form, not settled yet; ``job`` is the id asked for, if one was."""

    job: str | None
    definition: JobDefinition
    paused: bool


def parse_intake(document: dict[str, Any]) -> Intake:
    """Raises one 422 with every field at fault."""
    refuse_unbuilt(document)
    asked = parse_model(JobRequest, document)
    definition = JobDefinition.model_construct(
        **{name: getattr(asked, name) for name in JobDefinition.model_fields}
    )
    check_definition(definition)
    return Intake(asked.id, definition, asked.paused)


def settle_new(
    intake: Intake, caller: Principal, *, fingerprint: str, key: str | None, now: datetime, settings: Settings
) -> NewJob:
    """A job that can be created: its id chosen, its definition checked and resolved at ``now``."""
    tenant = caller.tenant
    job = intake.job or (id_of_key(tenant, key) if key else random_id())
    return NewJob(
        tenant=tenant,
        job=job,
        definition=settle(intake.definition, tenant=tenant, job=job, now=now, settings=settings),
        paused=intake.paused,
        fingerprint=fingerprint,
        key=key,
        by=caller.subject,
        accepted=now,
    )
