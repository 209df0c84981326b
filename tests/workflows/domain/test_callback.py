"""The lease of a run that its target may take over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from workflows.contracts.definition import JobDefinition
from workflows.domain import callback

CALLBACK = {"completion": "callback", "heartbeat_timeout": "PT30S"}


@pytest.mark.parametrize(
    ("fields", "left", "lease"),
    [
        pytest.param(CALLBACK, 86400, 30, id="shorter-than-the-attempt"),
        pytest.param({**CALLBACK, "timeout": "PT10S"}, 86400, 10, id="longer-than-timeout"),
        pytest.param({**CALLBACK, "timeout": "PT1H"}, 20, 20, id="longer-than-what-is-left"),
        pytest.param({**CALLBACK, "timeout": "PT1S"}, 86400, 3, id="never-below-3-s"),
        pytest.param(CALLBACK, 0, 3, id="nothing-left"),
        pytest.param({"heartbeat_timeout": "PT30S", "timeout": "PT1S"}, 1, 30, id="a-worker-beats-for-it"),
    ],
)
def test_a_lease_outlasts_no_attempt_that_its_target_may_take_over(
    fields: dict[str, Any], left: float, lease: float
) -> None:
    definition = JobDefinition.model_validate(
        {
            "schedule": {"every": 60, "anchor": "2026-12-01T00:00:00Z"},
            "target": {"url": "http://a/"},
            **fields,
        }
    )
    assert callback.lease(definition, timedelta(seconds=left)) == timedelta(seconds=lease)
