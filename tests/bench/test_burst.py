"""The burst benchmark at a small size, for correctness only."""

from __future__ import annotations

from pathlib import Path

from tests.bench.burst import bare_loop, carillon


async def test_jobs_due_in_the_same_second_all_run_once_and_never_early(tmp_path: Path) -> None:
    measured = await carillon(50, 12, tmp_path / "data")
    assert {what: (late.count, late.early) for what, late in measured.items()} == {
        "written": (50, 0),
        "arrival": (50, 0),
    }
    assert measured["arrival"].longest < 10


async def test_the_peer_sends_them_all() -> None:
    assert (await bare_loop(50, 10))["arrival"].count == 50
