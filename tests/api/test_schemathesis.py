"""The whole document against the whole service, by schemathesis: no 500, nothing undocumented.

What the document allows is sent, and what it does not; then calls are chained as the answers' links and
ids suggest. The run here is bounded. A deep one, by hand, on either database and with a seed of its own:

    CARILLON_DEEP=600 .venv/bin/python3 -m pytest tests/api/test_schemathesis.py -s -k sqlite

``CARILLON_DEEP`` is the time in seconds, ``CARILLON_SEED`` the seed; each failure is shown with a
command that repeats it. Nothing leaves the machine: the worker has a sender that sends nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from api.middleware import REQUESTS
from infra.settings import Settings
from tests.api.conftest import settings_in, started
from tests.api.nowhere import Nowhere
from tests.api.server import serving
from tests.api.tokens import bearer, token
from tests.infra.database.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")

DEEP = int(os.environ.get("CARILLON_DEEP", "0"))
SEED = os.environ.get("CARILLON_SEED", "4")
SECONDS = DEEP or 40
TRIES = 3
"""At most so many times as long, on a machine that stands still meanwhile, until all of ``REACHED`` is."""
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "unsupported_method",
    "allow_header_conformance", "ignored_auth", "use_after_free", "ensure_resource_availability",
    "missing_required_header",
)  # fmt: skip
"""Not ``positive_data_acceptance``: a schema cannot say which instants are occurrences, or which cursors
were given out. Not ``negative_data_rejection``: a number is taken for a duration, beside the form that
the schema names."""
ENDLESS = "streamEvents"
"""Its answer never ends; it has tests of its own."""
EXCEPTIONS = """
[[operations]]
include-path = "/readyz"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]

[[operations]]
include-path = "/v1/jobs/{job_id}/backfills/{backfill_id}"
checks.use_after_free.enabled = false
"""
"""A server that stands still for two seconds is not ready, and the call says so. A ``DELETE`` cancels a
backfill, which can be read as before."""

REACHED = {
    ("POST", "/v1/jobs"),
    ("GET", "/v1/jobs/{job_id}"),
    ("PATCH", "/v1/jobs/{job_id}"),
    ("DELETE", "/v1/jobs/{job_id}"),
    ("POST", "/v1/jobs/{job_id}/pause"),
    ("POST", "/v1/jobs/{job_id}/trigger"),
    ("GET", "/v1/bulk/{bulk_id}"),
    ("GET", "/v1/executions/{execution_id}"),
    ("PUT", "/v1/groups/{name}"),
    ("PATCH", "/v1/tenant"),
    ("POST", "/v1/dead-letters/redrive"),
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def installation(request: pytest.FixtureRequest, own_namespace: Settings, tmp_path: Path) -> Settings:
    more: dict[str, object] = {}
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        more["database_url"] = server.create_database("schemathesis")
    return settings_in(
        tmp_path,
        temporal_address=own_namespace.temporal_address,
        temporal_namespace=own_namespace.temporal_namespace,
        worker_grace=1,
        max_jobs=1_000_000,
        create_rate=10_000.0,
        **more,
    )


@pytest.mark.timeout(TRIES * SECONDS + 120)
async def test_no_call_breaks_its_word(
    installation: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from workers.main import run

    monkeypatch.setattr("workers.main.HttpSender", Nowhere)
    stop = asyncio.Event()
    before, missing = succeeded(), REACHED
    async with started(create_app(installation)) as app, serving(app, lifespan=False) as server:
        worker = asyncio.create_task(run(installation, stop=stop))
        try:
            await ours(server.url)
            for _ in range(TRIES):
                status, output = await schemathesis(server.url, tmp_path)
                assert status == 0, output
                missing = {call for call in REACHED if succeeded().get(call, 0) <= before.get(call, 0)}
                if not missing:
                    break
        finally:
            stop.set()
            await asyncio.wait_for(worker, 30)
    assert not missing, "the calls were not chained, but only refused"


async def ours(base: str) -> None:
    """Nothing is sent to a server that does not know the tests' secret."""
    async with httpx.AsyncClient(base_url=base, headers=bearer("fuzz")) as client:
        answer = await client.get("/v1/jobs")
        assert (answer.status_code, answer.json()) == (200, {"items": [], "next_cursor": None})


def succeeded() -> dict[tuple[str, str], float]:
    """Method and route of each call that ended well, and how often, as the application counted."""
    [metric] = REQUESTS.collect()
    found: dict[tuple[str, str], float] = {}
    for sample in metric.samples:
        if sample.name.endswith("_total") and sample.labels["status"].startswith("2"):
            call = (sample.labels["method"], sample.labels["route"])
            found[call] = found.get(call, 0) + sample.value
    return found


async def schemathesis(base: str, directory: Path) -> tuple[int | None, str]:
    (directory / "schemathesis.toml").write_text(EXCEPTIONS)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "run", f"{base}/openapi.json",
        "--header", f"Authorization: Bearer {token('fuzz', 'jobs:read jobs:write tenant:write')}",
        "--checks", ",".join(CHECKS),
        "--exclude-operation-id", ENDLESS,
        "--generation-database", "none",
        "--max-time", str(SECONDS),
        "--seed", SEED,
        "--workers", "1",
        "--request-timeout", "15",
        "--suppress-health-check", "all",
        "--continue-on-failure",
        "--warnings", "off",
        "--output-truncate", "false",
        "--no-color",
        cwd=directory,
        stdout=None if DEEP else asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, (output or b"").decode()
