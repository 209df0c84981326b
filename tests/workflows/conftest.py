"""Jobs on the real embedded server, with the real activities."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from infra.settings import Settings
from tests.fleet import Fleet
from tests.sink import Sink


def pytest_configure(config: pytest.Config) -> None:
    # A planning that ended as its job was evicted from the cache; as an error it would end the worker.
    config.addinivalue_line("filterwarnings", "ignore:Cannot find activity to cancel:UserWarning")


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = await Sink().start()
    yield sink
    await sink.stop()


@pytest.fixture(params=[1000, 0], ids=["cached", "replaying"])
async def fleet(
    request: pytest.FixtureRequest, temporal_client: Client, temporal_settings: Settings
) -> AsyncIterator[Fleet]:
    """A worker; every test runs with the workflow cache and without it, which replays each task."""
    settings = temporal_settings.model_copy(update={"max_cached_workflows": request.param})
    fleet = await Fleet(temporal_client, settings).start()
    yield fleet
    await fleet.stop()
