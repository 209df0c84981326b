"""Every history ever recorded replays with today's workflow code: running jobs survive an upgrade."""

from __future__ import annotations

import gzip

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from infra.temporal.converter import DATA_CONVERTER
from tests.replay.record import HISTORIES, SCENES
from workers.queues import WORKFLOWS, workflow_runner

RECORDED = sorted(HISTORIES.glob("*/*.json.gz"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
async def test_a_recorded_history_replays(path: object) -> None:
    replayer = Replayer(
        workflows=list(WORKFLOWS), data_converter=DATA_CONVERTER, workflow_runner=workflow_runner()
    )
    text = gzip.decompress(path.read_bytes()).decode()  # type: ignore[attr-defined]
    await replayer.replay_workflow(WorkflowHistory.from_json("job/acme/recorded", text))


def test_what_was_recorded_is_recorded_again_by_later_releases() -> None:
    """A scene that is new is recorded by the next one."""
    names = {path.name.split("-")[0] for path in RECORDED}
    assert names <= {scene.__name__ for scene in SCENES}
    assert len(names) >= 7


def test_a_job_was_recorded_across_a_continue_as_new() -> None:
    assert any(path.name.startswith("held-2") for path in RECORDED)
