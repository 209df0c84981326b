"""Whatever a document or a query holds, the answer is no worse than a problem."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.test_problems import assert_problem

TARGET = {"type": "http", "url": "https://example.com/hook"}


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "id", "paused", "description", "labels", "priority", "schedule", "spread", "starts_at", "ends_at",
    "max_runs", "except", "delete_after", "target", "timeout", "max_duration", "heartbeat_timeout",
    "max_reaps", "completion", "retry", "concurrency", "catch_up", "alerts", "pause_after",
]  # fmt: skip
SCHEDULE = st.fixed_dictionaries(
    {},
    optional={
        name: any_json
        | st.sampled_from(
            ["0 9 * * *", "PT5S", "2030-01-01T00:00:00", "9000-12-31T23:59:59-14:00", "1970-01-01T00:00:00Z",
             "UTC", "Europe/London", 1e11, -1, 0.1, "P999999999D", "both", "skip"]
        )
        for name in ("cron", "every", "anchor", "at", "in", "timezone", "gap", "fold")
    },
)  # fmt: skip
ODD = st.sampled_from(
    [
        "PT5S",
        1e11,
        1e308,
        -1,
        "P99999999Y",
        "9000-12-31T23:59:59-14:00",
        "2030-01-01T00:00:00Z",
        2**70,
        "☕",
        "",
    ]
)
BODIES = st.fixed_dictionaries(
    {"schedule": SCHEDULE, "target": any_json | st.just(TARGET)},
    optional={name: any_json | ODD for name in FIELDS if name not in ("schedule", "target")},
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES, method=st.sampled_from(["POST /v1/jobs", "PUT /v1/jobs/x", "POST /v1/schedules/preview"]))
async def test_no_document_is_worse_than_a_problem(
    offline_client: httpx.AsyncClient, body: dict[str, Any], method: str
) -> None:
    verb, _, path = method.partition(" ")
    raw = json.dumps(body).encode()
    answer = await offline_client.request(
        verb, path, content=raw, headers={"content-type": "application/json"}
    )
    if answer.status_code != 200:
        assert answer.status_code in (422, 503), answer.text
        assert_problem(answer, answer.status_code)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(
        st.sampled_from(
            ["q", "label", "status", "target", "outcome", "sort", "limit", "cursor", "since", "until"]
        ),
        max_size=3,
    ),
    value=st.text(max_size=30)
    | st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "5"]),
    path=st.sampled_from(["/v1/jobs", "/v1/executions", "/v1/jobs/x/executions", "/v1/executions/x"]),
)
async def test_no_query_is_worse_than_a_problem(
    offline_client: httpx.AsyncClient, names: list[str], value: str, path: str
) -> None:
    query = urlencode([(name, value) for name in names], errors="replace")
    answer = await offline_client.get(f"{path}?{query}")
    assert answer.status_code in (200, 404, 422), answer.text
