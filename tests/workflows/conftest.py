"""Jobs on the real embedded server, with the real activities."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.worker import Replayer

from infra.settings import Settings
from infra.temporal.converter import DATA_CONVERTER
from tests.fleet import Fleet
from tests.sink import Sink
from workers.queues import WORKFLOWS, workflow_runner


def pytest_configure(config: pytest.Config) -> None:
    # A planning that ended as its job was evicted from the cache; as an error it would end the worker.
    config.addinivalue_line("filterwarnings", "ignore:Cannot find activity to cancel:UserWarning")


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = await Sink().start()
    yield sink
    await sink.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test runs with the workflow cache, and without it, which replays each task.

    A module with ``UPDATES = True`` keeps the cache and replays every history at its end instead: without
    room for all workflows at work, the SDK (1.35) stumbles over an update that meets a local activity. One
    with ``WAITS = True`` takes minutes of real time, and runs without the cache only.
    """
    if "fleet" in metafunc.fixturenames:
        once = any(getattr(metafunc.module, name, False) for name in ("UPDATES", "WAITS"))
        metafunc.parametrize("fleet", ["replaying"] if once else ["cached", "replaying"], indirect=True)


@pytest.fixture
async def fleet(
    request: pytest.FixtureRequest, temporal_client: Client, temporal_settings: Settings
) -> AsyncIterator[Fleet]:
    """A worker."""
    replaying = request.param == "replaying"
    updates = getattr(request.module, "UPDATES", False)
    cache = 0 if replaying and not updates else 1000
    settings = temporal_settings.model_copy(update={"max_cached_workflows": cache})
    fleet = await Fleet(temporal_client, settings).start()
    yield fleet
    if replaying and updates:
        replayer = Replayer(
            workflows=list(WORKFLOWS), data_converter=DATA_CONVERTER, workflow_runner=workflow_runner()
        )
        for job in fleet.jobs:
            await replayer.replay_workflow(await job.fetch_history())
    await fleet.stop()
