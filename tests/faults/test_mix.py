"""Everything at once, by chance. ``CARILLON_FAULTS="ROUNDS SECONDS SEED"`` makes it longer, or another;
``make faults`` shows figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.mix import play_all

ROUNDS, SECONDS, SEED = (int(part) for part in os.environ.get("CARILLON_FAULTS", "1 20 1").split())


@pytest.mark.timeout(420 + ROUNDS * (SECONDS + 270))
async def test_a_random_mix_of_faults_loses_nothing(tmp_path: Path) -> None:
    """Nothing lost, early or side by side; every repeat can be recognised; what is run again is, and every
    incident is told."""
    figures = await play_all(tmp_path / "data", rounds=ROUNDS, seconds=SECONDS, seed=SEED)
    assert [str(finding) for finding in figures.balance.findings] == []
    assert sum(figures.faults.values()) >= ROUNDS * SECONDS / 4
    assert figures.balance.deliveries > ROUNDS * SECONDS / 2
    assert figures.balance.backfilled > 0
    assert figures.messages >= figures.incidents
