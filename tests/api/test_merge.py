"""A merge patch over a definition."""

from __future__ import annotations

from typing import Any

import pytest

from api.definitions import parse_definition
from api.jobs.answers import definition_document
from api.jobs.merge import merge

CURRENT = definition_document(
    parse_definition(
        {
            "schedule": {"cron": "0 9 * * *", "timezone": "Europe/Paris"},
            "target": {"url": "https://example.com/", "body": {"a": 1}, "headers": {"x": "y"}},
            "labels": {"team": "billing", "tier": "1"},
            "retry": {"max_attempts": 3, "factor": 3},
            "max_runs": 7,
        }
    )
)

CASES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "a value": ({"priority": 1}, "priority", 1),
    "inside an object": ({"retry": {"factor": 1.5}}, "retry", {**CURRENT["retry"], "factor": 1.5}),
    "a label more": (
        {"labels": {"env": "prod"}}, "labels", {"team": "billing", "tier": "1", "env": "prod"},
    ),
    "a label less": ({"labels": {"tier": None}}, "labels", {"team": "billing"}),
    "the schedule whole": ({"schedule": {"every": "PT5M"}}, "schedule", {"every": "PT5M"}),
    "the target whole": (
        {"target": {"url": "https://example.com/", "body": None}}, "target",
        {"url": "https://example.com/", "body": None},
    ),
    "null where null has a meaning": ({"delete_after": None}, "delete_after", None),
    "null takes a bound away": ({"max_runs": None}, "max_runs", None),
    "null inside an object": (
        {"alerts": {"consecutive_skips": None}}, "alerts", {**CURRENT["alerts"], "consecutive_skips": None},
    ),
    "an unknown name stays, to be refused": ({"priorty": 1}, "priorty", 1),
}  # fmt: skip


@pytest.mark.parametrize(("patch", "name", "wanted"), CASES.values(), ids=CASES.keys())
def test_what_a_patch_does(patch: dict[str, Any], name: str, wanted: Any) -> None:
    merged = merge(CURRENT, patch)
    assert merged[name] == wanted
    assert {key: merged[key] for key in CURRENT if key not in patch} == {
        key: value for key, value in CURRENT.items() if key not in patch
    }


@pytest.mark.parametrize("name", ["priority", "retry", "labels", "timeout", "catch_up"])
def test_null_gives_a_field_its_default_back(name: str) -> None:
    defaults = definition_document(
        parse_definition({"schedule": {"every": 60}, "target": {"url": "https://example.com/"}})
    )
    merged = parse_definition(merge(CURRENT, {name: None}))
    assert definition_document(merged)[name] == defaults[name]


def test_the_schedule_cannot_be_taken_away() -> None:
    assert "schedule" not in merge(CURRENT, {"schedule": None})


def test_an_empty_patch_changes_nothing() -> None:
    assert parse_definition(merge(CURRENT, {})) == parse_definition(CURRENT)
