"""From the document of a POST or a PUT to what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.definitions import check_definition, parse_model
from api.requests import JobRequest
from api.unbuilt import refuse_unbuilt
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
