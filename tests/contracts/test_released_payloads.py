"""What a release wrote into histories is read by every later one.

Each file holds one payload of each model, as its release wrote it, with every field set; ``released.json``
is that of 0.1.0. Never change what is there: a new release adds a file of its own (``write.py``).
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import workflows.contracts
from workflows.contracts.base import Contract

RELEASED: dict[str, dict[str, Any]] = {
    f"{path.stem.removeprefix('released-')}/{name}": payloads
    for path in sorted(Path(__file__).parent.glob("released*.json"))
    for name, payloads in json.loads(path.read_text()).items()
}


def models() -> dict[str, type[Contract]]:
    found: dict[str, type[Contract]] = {}
    for module in pkgutil.iter_modules(workflows.contracts.__path__, "workflows.contracts."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Contract) and value is not Contract:
                found[value.__name__] = value
    return found


MODELS = models()
MAPS = {"ran"}
"""Fields whose keys are data: of any name, now and later."""


def model_of(name: str) -> type[Contract]:
    return MODELS[name.rpartition("/")[2]]


def written(model: BaseModel) -> Any:
    """As the payload converter writes it."""
    return json.loads(model.model_dump_json(by_alias=True))


def holds(found: Any, expected: Any) -> bool:
    """Everything expected is in what was found, which may know more fields."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            name in found and holds(found[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(holds, found, expected))
    return bool(found == expected)


def test_no_model_was_taken_away() -> None:
    """A new one comes with a payload of its own, with the release that brings it."""
    assert {name.rpartition("/")[2] for name in RELEASED} <= set(MODELS)


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_payload_is_read_without_loss(name: str) -> None:
    assert holds(written(model_of(name).model_validate(RELEASED[name]["full"])), RELEASED[name]["full"])


@pytest.mark.parametrize("name", RELEASED)
def test_fields_of_newer_releases_are_ignored_at_every_depth(name: str) -> None:
    def with_news(value: Any) -> Any:
        if isinstance(value, dict) and "body" not in value and "labels" not in value and value:
            return {key: one if key in MAPS else with_news(one) for key, one in value.items()} | {
                "of_next_year": {"a": 1}
            }
        return [with_news(one) for one in value] if isinstance(value, list) else value

    full = RELEASED[name]["full"]
    assert model_of(name).model_validate(full | {"of_next_year": 1}) == model_of(name).model_validate(full)
    model_of(name).model_validate(with_news(full))


@pytest.mark.parametrize("name", RELEASED)
def test_a_payload_of_only_what_was_required_is_read(name: str) -> None:
    """So every field that joined later has a default."""
    model_of(name).model_validate(RELEASED[name]["required"])


@pytest.mark.parametrize("name", RELEASED)
def test_no_field_was_taken_away(name: str) -> None:
    fields = model_of(name).model_fields
    known = {*fields, *(field.alias for field in fields.values() if field.alias)}
    assert set(RELEASED[name]["full"]) <= known


CHOICES: dict[str, tuple[str, str, list[str]]] = {
    "outcomes": (
        "ExecutionRow", "outcome",
        ["scheduled", "held", "queued", "running", "retrying", "succeeded", "failed", "timed_out",
         "dead_lettered", "skipped", "missed", "cancelled", "replaced"],
    ),
    "triggers": (
        "ExecutionRow", "trigger", ["schedule", "manual", "backfill", "catch_up", "redrive", "rerun"],
    ),
    "attempts": (
        "AttemptRow", "outcome", ["running", "succeeded", "failed", "timed_out", "cancelled"],
    ),
    "reports": (
        "AttemptReport", "outcome", ["succeeded", "failed", "timed_out", "late", "cancelled", "returned"],
    ),
    "phases": ("HeartbeatDetails", "phase", ["held", "fired"]),
    "intents": ("StopIntent", "intent", ["none", "if_held", "now"]),
    "statuses": ("JobView", "status", ["active", "paused", "completed", "deleted"]),
    "catch-up": ("CatchUp", "policy", ["latest", "all", "none"]),
    "policies": ("Concurrency", "policy", ["forbid", "allow", "replace", "queue"]),
    "gaps": ("Schedule", "gap", ["shift", "skip"]),
    "folds": ("Schedule", "fold", ["first", "last", "both"]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "field", "members"), CHOICES.values(), ids=CHOICES)
def test_no_member_of_a_choice_was_taken_away(name: str, field: str, members: list[str]) -> None:
    for member in members:
        payload = RELEASED[f"released/{name}"]["full"] | {field: member}
        assert getattr(MODELS[name].model_validate(payload), field) == member
