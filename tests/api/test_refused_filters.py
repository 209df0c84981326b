"""A query that nothing can match is refused and says why; one that happens to match nothing is empty."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.test_problems import assert_problem

QUERIES = [
    "label==", "label==x", "label=a+b=c", "group=No+Group", "q=a%00b", "label=a%00=b", "target=%00",
    "cursor=garbage", "cursor=", "cursor=W10", "limit=0", "limit=201", "limit=x", "limit=1e3", "sort=name",
    "status=gone", "label=team", "nonsense=1", "outcome=great", "q=" + "x" * 201, "cursor=" + "x" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
async def test_query_parameters_that_are_refused(offline_client: httpx.AsyncClient, query: str) -> None:
    problem = assert_problem(await offline_client.get(f"/v1/jobs?{query}"), 422)
    assert problem["errors"][0]["parameter"] == query.partition("=")[0]


@pytest.mark.parametrize("query", ["q=%FF", "label=a=", "group=nobody"])
async def test_query_parameters_that_find_nothing(offline_client: httpx.AsyncClient, query: str) -> None:
    answer = await offline_client.get(f"/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["items"]) == (200, [])


LATER_FIRST = "since=2026-12-02T00:00:00Z&until=2026-12-01T00:00:00Z"
NEVER = {
    LATER_FIRST: ("executions", "jobs/a/executions", "dead-letters", "audit"),
    "since=2026-12-01T00:00:00Z&until=2026-12-01T00:59:59%2B01:00": ("executions", "audit"),
    "job=No+Such+Id": ("executions", "dead-letters", "audit", "events"),
    "job=acme/report": ("executions", "dead-letters", "audit", "events"),
    "job=report~2": ("executions", "dead-letters", "audit", "events"),
    "job=": ("executions", "dead-letters", "audit", "events"),
    "label=team=x&label=team=y": ("jobs", "executions"),
}
"""Filters that nothing can match, whatever there is; each with the lists that have them."""


@pytest.mark.parametrize(
    ("path", "query"), [(path, query) for query, paths in NEVER.items() for path in paths]
)
async def test_a_filter_that_nothing_can_match_is_refused(
    offline_client: httpx.AsyncClient, path: str, query: str
) -> None:
    """An empty list would be taken for an answer."""
    problem = assert_problem(await offline_client.get(f"/v1/{path}?{query}"), 422)
    [error] = problem["errors"]
    assert error["parameter"] == ("until" if "until" in query else query.partition("=")[0])
    assert "; " in error["detail"], "it says what to do instead"


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (
            "dead-letters/redrive",
            {"since": "2026-12-02T00:00:00Z", "until": "2026-12-01T00:00:00Z"},
            "/until",
        ),
        ("dead-letters/redrive", {"job": "acme/report"}, "/job"),
        ("jobs/bulk", {"action": "delete", "filter": {"label": ["team=x", "team=y"]}}, "/filter/label"),
        ("jobs/bulk", {"action": "delete", "filter": {"label": "=x"}}, "/filter/label"),
    ],
)
async def test_many_are_not_changed_by_a_filter_that_nothing_can_match(
    offline_client: httpx.AsyncClient, path: str, body: dict[str, Any], pointer: str
) -> None:
    problem = assert_problem(await offline_client.post(f"/v1/{path}", json=body), 422)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.parametrize("query", ["since=2026-12-01T00:00:00Z&until=2026-12-01T00:00:00Z", "job=nobody"])
@pytest.mark.parametrize("path", ["executions", "dead-letters", "audit"])
async def test_a_filter_that_happens_to_match_nothing_is_answered(
    offline_client: httpx.AsyncClient, path: str, query: str
) -> None:
    answer = await offline_client.get(f"/v1/{path}?{query}")
    assert (answer.status_code, answer.json()["items"]) == (200, [])
