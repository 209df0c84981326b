"""What is written for each attempt leaves its defaults out; so they are part of what was released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.temporal.converter import DATA_CONVERTER
from tests.contracts.test_released_payloads import MODELS, RELEASED, holds, written
from workflows.contracts.attempt import AttemptInput

DEFAULTS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "defaults.json").read_text())
"""What a payload of only what was required means. Fields may join; never change what is there: a default
that must be another is a new field, or is written from the release on that changes it."""
BRIEF = sorted(name for name, model in MODELS.items() if model.leaves_defaults_out)
AT = "2026-12-01T09:00:00Z"
LEAST: dict[str, dict[str, Any]] = {
    "AttemptInput": {
        "tenant": "acme",
        "ref": "report",
        "job": "report",
        "occurrence": {"key": "acme/report:2026-12-01T09:00:00Z", "scheduled_time": AT, "fires_at": AT},
        "attempt": 1,
        "fires_at": AT,
        "definition": {"schedule": {"every": "PT1M"}, "target": {"url": "https://example.com/hook"}},
        "revision": 1,
    },
    "AttemptReport": {"outcome": "succeeded", "ended_at": AT},
    "HeartbeatDetails": {"native_attempt": 1, "phase": "held", "deliveries": 0, "reaps": 0, "at": AT},
}
"""Only what is required, at every depth."""


def through_a_history(value: Any) -> Any:
    [payload] = DATA_CONVERTER.payload_converter.to_payloads([value])
    return DATA_CONVERTER.payload_converter.from_payloads([payload], [type(value)])[0]


def test_each_model_that_leaves_defaults_out_has_them_written_down() -> None:
    assert sorted(DEFAULTS) == BRIEF


@pytest.mark.parametrize("name", BRIEF)
def test_what_is_left_out_means_what_it_meant(name: str) -> None:
    assert holds(written(MODELS[name].model_validate(LEAST[name])), DEFAULTS[name])


@pytest.mark.parametrize("name", BRIEF)
@pytest.mark.parametrize("filled", ["full", "required"])
def test_nothing_is_lost_on_the_way(name: str, filled: str) -> None:
    value = MODELS[name].model_validate(RELEASED[f"0.2.0/{name}"][filled])
    assert through_a_history(value) == value


@pytest.mark.parametrize(
    "definition",
    [
        {"delete_after": None},
        {"alerts": {"consecutive_skips": None}},
        {"catch_up": {"window": None}},
        {"target": {"url": "https://example.com/hook", "body": None, "success": ["204"]}},
        {"target": {"url": "https://example.com/hook", "body": {}}},
        {"max_reaps": 0},
    ],
    ids=str,
)
def test_a_choice_that_looks_like_none_at_all_is_kept(definition: dict[str, Any]) -> None:
    least = LEAST["AttemptInput"]
    value = AttemptInput.model_validate(least | {"definition": least["definition"] | definition})
    assert through_a_history(value) == value


@pytest.mark.parametrize("name", BRIEF)
def test_defaults_are_left_out_at_every_depth(name: str) -> None:
    [payload] = DATA_CONVERTER.payload_converter.to_payloads([MODELS[name].model_validate(LEAST[name])])
    assert json.loads(payload.data) == LEAST[name]
