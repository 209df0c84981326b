"""One installation for all fault tests of the package; each test has jobs of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.faults.receiver import Receiver
from tests.faults.watched import Watched
from tests.processes.conftest import Installation, installed


@pytest.fixture(scope="package")
async def harmed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async with installed(tmp_path_factory.mktemp("faults") / "data") as installation:
        yield installation


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = await Receiver().start()
    yield receiver
    await receiver.stop()


@pytest.fixture
def watched(harmed: Installation, receiver: Receiver) -> Watched:
    return Watched(harmed, receiver)
