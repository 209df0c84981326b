"""From a JSON document to a :class:`JobDefinition`: form only; meaning is the domain's business.

JSON is taken strictly (no number written as a text), with two courtesies: a duration may be a
number of seconds, and an instant must be a full RFC 3339 text, so that no number passes for one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from api.filters import LABEL_NAME
from api.instants import instant_fault
from api.invalid import problem_of
from api.problems import FieldError, Kind, ProblemError, invalid
from api.unbuilt import refuse_unbuilt
from workflows.contracts.definition import DEFINITION_MAX_BYTES, RESPONSE_MAX, JobDefinition

MAX_LABELS = 64
MAX_LABEL_VALUE = 255

DURATIONS = (
    "spread", "delete_after", "timeout", "max_duration", "heartbeat_timeout",
    "schedule/every", "schedule/in", "retry/initial_interval", "retry/max_interval",
    "catch_up/window", "catch_up/grace", "alerts/no_success_for",
)  # fmt: skip
INSTANTS = (
    "starts_at", "ends_at", "schedule/at", "schedule/anchor", "except/*/from", "except/*/to",
    "since", "until", "from", "to", "scheduled_time",
)  # fmt: skip
"""Of definitions, and of the other bodies: their names do not clash."""
_SECONDS_MAX = 1e11
DURATION_MAX = timedelta(days=36_525)
"""A century: added to any instant of a schedule it does not leave the calendar."""

Model = TypeVar("Model", bound=BaseModel)
_duration_text = TypeAdapter(timedelta)


def parse_definition(document: dict[str, Any]) -> JobDefinition:
    """A definition with all its defaults. Raises :class:`ProblemError` naming every field at fault."""
    refuse_unbuilt(document)
    definition = parse_model(JobDefinition, document)
    check_definition(definition)
    return definition


def check_definition(definition: JobDefinition) -> None:
    """Bounds that the contract's types do not hold: labels, and the size of the whole."""
    _check_labels(definition.labels)
    _check_timeout(definition)
    if len(definition.model_dump_json(by_alias=True).encode()) > DEFINITION_MAX_BYTES:
        raise ProblemError(
            Kind.TOO_LARGE,
            f"The definition is larger than {DEFINITION_MAX_BYTES // 1024} KiB, its body included.",
        )


def parse_model(model: type[Model], document: dict[str, Any]) -> Model:
    """Strict, by alias only, unknown fields refused."""
    prepared = json.loads(json.dumps(document))
    prepare(prepared)
    try:
        parsed = model.model_validate_json(
            json.dumps(prepared), strict=True, extra="forbid", by_alias=True, by_name=False
        )
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise problem_of(details, document, model=model) from None
    except OverflowError:
        raise invalid("An instant or a duration lies outside of the calendar.") from None
    for pointer, value in _durations(parsed, ""):
        if value > DURATION_MAX:
            raise invalid(f"A duration is at most {DURATION_MAX.days} days.", pointer)
    return parsed


def prepare(document: dict[str, Any]) -> None:
    """Writes numbers of seconds as ISO 8601 and checks the form of instants, in place."""
    for path in DURATIONS:
        for holder, name, _ in _fields(document, path.split("/"), ""):
            holder[name] = _as_duration(holder[name])
    wrong: list[FieldError] = []
    for path in INSTANTS:
        for holder, name, pointer in _fields(document, path.split("/"), ""):
            detail = instant_fault(holder[name])
            if detail:
                wrong.append(FieldError(pointer=pointer, detail=detail))
    if wrong:
        raise ProblemError(Kind.INVALID, f"`{wrong[0].pointer}`: {wrong[0].detail}", errors=wrong)


def _fields(value: Any, path: list[str], pointer: str) -> Iterator[tuple[Any, str, str]]:
    head, *rest = path
    if head == "*":
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _fields(item, rest, f"{pointer}/{index}")
    elif isinstance(value, dict) and value.get(head) is not None:
        if rest:
            yield from _fields(value[head], rest, f"{pointer}/{head}")
        else:
            yield value, head, f"{pointer}/{head}"


def _as_duration(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _SECONDS_MAX:
        return value
    return _duration_text.dump_python(timedelta(seconds=value), mode="json")


def _durations(model: BaseModel, pointer: str) -> Iterator[tuple[str, timedelta]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        place = f"{pointer}/{field.alias or name}"
        if isinstance(value, timedelta):
            yield place, value
        elif isinstance(value, BaseModel):
            yield from _durations(value, place)


def _check_timeout(definition: JobDefinition) -> None:
    """Nobody's answer is waited for longer than six hours; a target that reports its end may take longer."""
    timeout = definition.timeout
    if timeout <= RESPONSE_MAX:
        return
    if definition.completion != "callback":
        raise invalid(
            "An answer is waited for 6 hours at most. For a longer run set `completion` to `callback`: the "
            "target then answers 202 at once and reports its end.",
            "/timeout",
        )
    if timeout > definition.max_duration:
        raise invalid(
            "A `timeout` over 6 hours is at most `max_duration`, which bounds all attempts together: "
            "raise `max_duration`.",
            "/timeout",
        )


def _check_labels(labels: dict[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise invalid(f"A job has at most {MAX_LABELS} labels.", "/labels")
    for name, value in labels.items():
        if LABEL_NAME.fullmatch(name) is None:
            raise invalid(
                "A label's name has 1 to 63 letters, digits, dots, dashes, slashes and underscores, "
                f"the first a letter or digit; `{name[:80]}` is none.",
                "/labels",
            )
        if len(value) > MAX_LABEL_VALUE:
            raise invalid(f"A label's value has at most {MAX_LABEL_VALUE} characters.", f"/labels/{name}")
