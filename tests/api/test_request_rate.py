"""The request rate of a tenant: a bucket each, a 429 before anything else, bounded memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from api.app import create_app
from api.problems import Kind, ProblemError
from api.rate import RequestRate
from tests.api.conftest import client_of, settings_in, started


class Hand:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(rate: RequestRate, tenant: str, times: int) -> int:
    """How many of so many requests were let through."""
    through = 0
    for _ in range(times):
        try:
            rate.take(tenant)
        except ProblemError as problem:
            if problem.kind is not Kind.TOO_MANY_REQUESTS:
                raise
        else:
            through += 1
    return through


def test_twice_the_rate_at_once_and_the_rate_in_the_long_run() -> None:
    hand = Hand()
    rate = RequestRate(10, hand)
    assert taken(rate, "acme", 50) == 20
    assert taken(rate, "other", 50) == 20, "tenants do not share"
    hand.now += 0.5
    assert taken(rate, "acme", 50) == 5
    hand.now += 3600
    assert taken(rate, "acme", 50) == 20


def test_a_slow_rate_says_how_long_to_wait() -> None:
    hand = Hand()
    rate = RequestRate(0.1, hand)
    assert taken(rate, "acme", 1) == 1
    with pytest.raises(ProblemError) as refused:
        rate.take("acme")
    wait = int(refused.value.headers["Retry-After"])
    hand.now += wait
    assert taken(rate, "acme", 2) == 1


def test_only_so_many_tenants_are_remembered() -> None:
    hand = Hand()
    rate = RequestRate(1, hand, remembered=3)
    for tenant in ("a", "b", "c", "a", "d", "e"):
        rate.take(tenant)
    assert len(rate) == 3
    assert taken(rate, "a", 2) == 0, "the one that was away longest is forgotten, not the busy one"


def test_a_request_costs_microseconds() -> None:
    rate = RequestRate(1e9, time.monotonic)
    began = time.process_time()
    for number in range(10_000):
        rate.take(f"tenant-{number % 100}")
    assert time.process_time() - began < 1


async def test_a_tenant_that_is_too_fast_is_answered_before_its_body_is_read(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, request_rate=0.5)
    async with started(create_app(settings)) as app, client_of(app) as acme, client_of(app, "other") as other:
        assert (await acme.get("/v1/jobs")).status_code == 200
        refused = await acme.post("/v1/jobs", content=b"not even JSON")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["type"] == "urn:carillon:problem:too-many-requests"
        assert (await other.get("/v1/jobs")).status_code == 200
        for path in ("/healthz", "/docs", "/metrics", "/openapi.json"):
            for _ in range(3):
                assert (await acme.get(path)).status_code == 200
        acme.headers["authorization"] = "Bearer x"
        assert (await acme.get("/v1/jobs")).status_code == 401, "no token takes no place of a tenant"
