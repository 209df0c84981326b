"""Two jobs in one group, and a worker that is killed in the middle of their runs, again and again.

``CARILLON_GROUP_RUNS="500 7"``: so many runs, and the seed of their durations and of the instants of the
kills. Figures are printed (``-s``).
"""

from __future__ import annotations

import asyncio
import os
import random
import time

import pytest
from aiohttp import web
from rich.console import Console

from tests.faults.accounts import NOT_RUN
from tests.faults.processes import kill, until_started
from tests.faults.receiver import Caller, Receiver
from tests.faults.watched import Watched

RUNS, SEED = (int(part) for part in os.environ.get("CARILLON_GROUP_RUNS", "8 1").split())
JOBS = ("left", "right")
LONGEST = 0.8
"""Seconds a run takes at most."""
TRUCE = 11.0
"""Between two kills: ``carillon up`` gives up a child that never lives for ten seconds."""
FIRST_KILL = 3
"""The run in which the worker is killed first; with a few runs only there must be one."""
BETWEEN_KILLS = (5, 12)
"""Runs that end between two kills, lest the same one be met again and again."""


async def _kill_again_and_again(watched: Watched, chance: random.Random, kills: list[float]) -> None:
    """Each time in the middle of a run, until cancelled."""
    receiver = watched.receiver
    number = FIRST_KILL
    while True:
        await receiver.until(lambda number=number: _ended(receiver) >= number, within=120)
        before = len(receiver.visits)
        await receiver.until(lambda before=before: len(receiver.visits) > before, within=60)
        await asyncio.sleep(chance.uniform(0, LONGEST / 2))
        if kill(watched.installation, "worker"):
            kills.append(time.time())
        await until_started(watched.installation, "worker")
        await asyncio.sleep(TRUCE)
        number = _ended(receiver) + chance.randint(*BETWEEN_KILLS)


def _ended(receiver: Receiver, job: str | None = None) -> int:
    """Runs of a job, or of all, that were answered."""
    return len({visit.key for visit in receiver.visits if visit.status and job in (None, visit.job)})


@pytest.mark.timeout(240 + RUNS * 4)
async def test_two_jobs_of_a_group_never_run_side_by_side(watched: Watched) -> None:
    """Nothing is lost either, and both get their turns."""
    chance, kills = random.Random(SEED), list[float]()

    async def take_some_time(caller: Caller) -> web.StreamResponse:
        await asyncio.sleep(chance.uniform(0.05, LONGEST))
        return caller.answer()

    watched.receiver.manners |= dict.fromkeys(JOBS, take_some_time)
    for job in JOBS:
        await watched.every(job, 1, concurrency={"group": "pair"}, max_reaps=100)
    killing = asyncio.create_task(_kill_again_and_again(watched, chance, kills))
    receiver = watched.receiver
    try:
        await receiver.until(lambda: _ended(receiver) >= RUNS, within=200 + RUNS * 3.5)
    finally:
        killing.cancel()
        await asyncio.wait([killing])
    await until_started(watched.installation, "worker")
    found = await watched.settle(groups=[JOBS])
    rows = [row for account in await watched.accounts() for row in account.rows]
    left, right = (_ended(receiver, job) for job in JOBS)
    Console().print(
        f"\n{left} and {right} runs, {len(kills)} kills, {found.deliveries} deliveries, "
        f"{found.again} of them repeats, {len(found.of_kind('overlap'))} overlaps, "
        f"{len(found.named)} more with a delivery whose lease was lost, {len(found.of_kind('lost'))} lost, "
        f"{found.skipped} skipped, {found.missed} missed"
    )
    assert [str(finding) for finding in found.findings] == []
    assert kills, "nobody was killed"
    assert all(row.outcome == "succeeded" for row in rows if row.outcome not in NOT_RUN)
    assert min(left, right) >= RUNS / 4, "first come, first served"
    await watched.delete()
