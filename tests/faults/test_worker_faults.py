"""The worker is killed or stands still in the hold, in mid-run, and between the answer and its report.

One blow meets all three: ``held`` is due soon after it, ``flying`` waits for its answer, and ``answered``
deals it as its own answer is being sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest
from aiohttp import web

from tests.faults.accounts import Balance, Visit
from tests.faults.processes import LEASE, kill, pids, send, until_started
from tests.faults.receiver import Callback, Caller, Receiver
from tests.faults.watched import Watched

SHORT, LONG = 0.5, LEASE + 2.5
AGAIN_WITHIN = 40
"""A lease, the retry, a worker's start, on a busy machine."""


RESTARTS, RESTART_EVERY = (int(part) for part in os.environ.get("CARILLON_ROLLING", "1 0").split())
"""``CARILLON_ROLLING="12 10"``: twelve restarts, ten seconds of the run between two of them."""


class Blow:
    """What happens to the worker when ``answered`` has its answer; ``flying`` is answered after it."""

    def __init__(self, watched: Watched, freeze: float | None) -> None:
        self.watched, self.freeze = watched, freeze
        self.over = asyncio.Event()
        self.at = 0.0
        [self.worker] = pids(watched.installation, "worker")  # known before, for there is no time then

    async def deal(self) -> None:
        """The worker stands still already."""
        if self.freeze is None:
            send(self.worker, signal.SIGKILL)
        else:
            await asyncio.sleep(self.freeze)
            send(self.worker, signal.SIGCONT)
        self.over.set()

    async def answered(self, caller: Caller) -> web.StreamResponse:
        """The worker is stopped before the answer leaves, lest it be quick enough to report it."""
        if caller.number > 0:
            return caller.answer()
        self.at = time.time()
        send(self.worker, signal.SIGSTOP)
        response = await caller.answer_now()
        await self.deal()
        return response

    async def flying(self, caller: Caller) -> web.StreamResponse:
        if caller.number == 0:
            await self.over.wait()
            if self.freeze is None:
                return await caller.hang()
        return caller.answer()


async def struck(watched: Watched, name: str, freeze: float | None) -> tuple[Blow, Balance]:
    receiver, blow = watched.receiver, Blow(watched, freeze)
    receiver.manners |= {f"answered-{name}": blow.answered, f"flying-{name}": blow.flying}
    await watched.every(f"punctual-{name}", 1, catch_up={"policy": "none", "grace": 1})
    await watched.once(f"flying-{name}")
    await receiver.wait_for(f"flying-{name}")
    held_at = await watched.once(f"held-{name}", 7)
    await watched.once(f"answered-{name}")
    await receiver.wait_for(f"answered-{name}")
    await asyncio.wait_for(blow.over.wait(), 20)
    assert blow.at < held_at, "the machine was too slow for this test to show anything"
    for job in ("held", "flying", "answered"):
        # tasks that the server gave to a process that stands still come to another by their own bounds
        assert await watched.until_ended(f"{job}-{name}", within=90) == "succeeded"
    return blow, await watched.settle()


async def until(instant: float) -> None:
    await asyncio.sleep(max(0.0, instant - time.time()))


def sent(visits: list[Visit]) -> list[tuple[int, int]]:
    return [(visit.attempt, visit.delivery) for visit in visits]


@pytest.mark.parametrize(
    ("name", "freeze", "repeated"),
    [
        pytest.param("killed", None, True, id="SIGKILL"),
        pytest.param("short", SHORT, False, id="SIGSTOP-shorter-than-the-lease"),
        pytest.param("long", LONG, True, id="SIGSTOP-longer-than-the-lease"),
    ],
)
async def test_a_worker_struck_in_the_hold_in_mid_run_and_before_its_report(
    watched: Watched, name: str, freeze: float | None, repeated: bool
) -> None:
    """What was in flight comes again under its own id with a higher delivery, once; what was held comes
    once; a worker that only stood still for less than its lease changes nothing."""
    blow, found = await struck(watched, name, freeze)
    assert found.findings == []
    receiver = watched.receiver
    assert sent(receiver.at(f"flying-{name}")) == [(1, 1), (1, 2)][: 1 + repeated]
    assert sent(receiver.at(f"answered-{name}")) == [(1, 1), (1, 2)][: 1 + repeated]
    [held] = receiver.at(f"held-{name}")
    assert held.attempt == 1
    for visit in (
        receiver.at(f"held-{name}") + receiver.at(f"flying-{name}") + receiver.at(f"answered-{name}")
    ):
        assert visit.start - blow.at < AGAIN_WITHIN
    # what fell due meanwhile is missed, and does not come in a burst afterwards
    punctual = receiver.at(f"punctual-{name}")
    assert punctual[-1].start > blow.at
    assert [visit for visit in punctual if visit.delivery == 1 and visit.start - visit.due > 6] == []


@pytest.mark.timeout(120)
async def test_a_job_that_kills_its_worker_ends_in_the_dead_letters_and_others_go_on(
    watched: Watched, receiver: Receiver
) -> None:
    """Four deliveries of one execution id, each with a number of its own, and no fifth. A job whose interval
    is longer than any worker lives keeps its grid too."""

    async def kill_always(caller: Caller) -> web.StreamResponse:
        kill(watched.installation, "worker")
        return await caller.hang()

    receiver.manners["poison"] = kill_always
    await watched.every("neighbour", 2)
    await watched.every("longer-than-a-life", 7)
    await receiver.wait_for("neighbour")
    await watched.once("poison", max_reaps=3)
    assert await watched.until_ended("poison", within=90) == "dead_lettered"
    neighbours = len(receiver.at("neighbour"))
    await receiver.wait_for("neighbour", neighbours + 2)
    assert len(receiver.at("longer-than-a-life")) >= 2
    found = await watched.settle()
    assert found.findings == []
    assert found.dead_lettered == 1
    assert [row.reason for row in (await watched.account("poison")).rows] == ["leases_lost"]
    assert sent(receiver.at("poison")) == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert len({visit.execution_id for visit in receiver.at("poison")}) == 1


@pytest.mark.timeout(60 + RESTARTS * (RESTART_EVERY + 60))
async def test_a_rolling_restart_under_a_long_run_counts_no_reap(
    watched: Watched, receiver: Receiver
) -> None:
    """Each worker that is told to stop gives the run back, which begins again as its next delivery. A reap
    would end it at once, for none is allowed."""
    long_enough = asyncio.Event()

    async def take_long(caller: Caller) -> web.StreamResponse:
        await long_enough.wait()
        return caller.answer()

    receiver.manners["long"] = take_long
    await watched.once("long", max_reaps=0, timeout=3600)
    for restart in range(RESTARTS):
        await receiver.wait_for("long", restart + 1, within=60)
        await asyncio.sleep(RESTART_EVERY)
        [worker] = await until_started(watched.installation, "worker")
        send(worker, signal.SIGTERM)
    await receiver.wait_for("long", RESTARTS + 1, within=60)
    long_enough.set()
    assert await watched.until_ended("long") == "succeeded"
    assert (await watched.settle()).findings == []
    assert sent(receiver.at("long")) == [(1, 1 + number) for number in range(RESTARTS + 1)]


async def test_a_result_that_comes_together_with_the_occurrence_that_replaces_its_run(
    watched: Watched, receiver: Receiver
) -> None:
    """The worker is away while a target reports its end and the next occurrence falls due, so the job
    learns of both at once: the run succeeded, and the job goes on."""
    [worker] = await until_started(watched.installation, "worker")
    done = asyncio.Event()

    async def report(callback: Callback) -> None:
        await done.wait()
        assert await callback.complete() == 204

    async def accept(caller: Caller) -> web.StreamResponse:
        return caller.accept(report)

    receiver.manners["together"] = accept
    policy: dict[str, Any] = {
        "completion": "callback",
        "concurrency": {"policy": "replace"},
        "heartbeat_timeout": 20,
    }
    anchor = await watched.every("together", 4, **policy)
    await receiver.wait_for("together")
    await until(anchor + 4 - 0.8)
    send(worker, signal.SIGKILL)
    await until(anchor + 4 + 0.2)
    done.set()
    await receiver.wait_for("together", 2)
    found = await watched.settle()
    assert found.findings == []
    outcomes = {row.first: row.outcome for row in (await watched.account("together")).rows}
    assert outcomes[anchor] == "succeeded"
