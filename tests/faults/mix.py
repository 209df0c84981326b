"""A seeded random mix of faults over jobs of several kinds, and the ledger at the end of each round.

``make faults ARGS="--rounds 20 --seconds 30 --seed 7"``. A round makes its own jobs, deals a blow each
second or so to the processes, the database and the target, heals everything, waits until every job goes on,
pauses them and balances their accounts. What the seed decides is the order of blows and moods; what they
meet is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.faults.ledger import NOTICED_WITHIN, Balance, Finding
from tests.faults.moods import KINDS, Mood
from tests.faults.processes import LEASE, database_locked, frozen, pids, send
from tests.faults.receiver import Receiver
from tests.faults.watched import Watched
from tests.processes.conftest import Installation, installed

DEATHS, TRUCE = 8, 25.0
"""After so many deaths of a part it is left alone for so many seconds: ``carillon up`` gives a child up
that never lives for ten seconds, and that is no fault to test here."""
HEALED_WITHIN = 120.0
"""Seconds. A target may be in a mood to hang until the time-out of 30 s, for some attempts in a row."""


class Blows:
    """The faults, dealt at random until they are to end. Each heals by itself."""

    def __init__(self, installation: Installation, moods: list[Mood], chance: random.Random) -> None:
        self._installation = installation
        self._moods = moods
        self._chance = chance
        self._deaths: dict[str, deque[float]] = {
            part: deque(maxlen=DEATHS) for part in ("worker", "api", "server")
        }
        self._locked = asyncio.Lock()
        self.dealt: Counter[str] = Counter()
        self.stood_still: list[tuple[float, float]] = []

    async def deal(self, seconds: float) -> None:
        """Returns when the last one has healed."""
        kinds: dict[str, tuple[int, Callable[[], Awaitable[bool]]]] = {
            "worker killed": (4, lambda: self._kill("worker")),
            "worker stopped": (2, lambda: self._kill("worker", signal.SIGTERM)),
            "worker frozen": (4, lambda: self._freeze("worker", 0.3, LEASE + 3)),
            "server killed": (1, lambda: self._kill("server")),
            "server frozen": (1, lambda: self._freeze("server", 0.3, 3)),
            "API killed": (2, lambda: self._kill("api")),
            "API frozen": (1, lambda: self._freeze("api", 0.3, 3)),
            "database locked": (2, self._lock),
            "target in trouble": (2, self._trouble),
        }
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while (left := end - time.monotonic()) > 0:
                [name] = self._chance.choices(list(kinds), [weight for weight, _ in kinds.values()])
                group.create_task(self._one(name, kinds[name][1]))
                await asyncio.sleep(min(left, self._chance.uniform(0.3, 1.7)))

    async def _one(self, name: str, blow: Callable[[], Awaitable[bool]]) -> None:
        if await blow():
            self.dealt[name] += 1

    async def _kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> bool:
        deaths, now = self._deaths[part], time.monotonic()
        if len(deaths) == DEATHS:
            if now - deaths[-1] < TRUCE:
                return False
            deaths.clear()
        found = pids(self._installation, part)
        if not found:
            return False
        deaths.append(now)
        send(self._chance.choice(sorted(found)), number)
        return True

    async def _freeze(self, part: str, least: float, most: float) -> bool:
        found = pids(self._installation, part)
        seconds = self._chance.uniform(least, most)
        if not found:
            return False
        begun = time.time()
        async with frozen(self._chance.choice(sorted(found))):
            await asyncio.sleep(seconds)
        if part == "worker":
            self.stood_still.append((begun, time.time() + NOTICED_WITHIN))
        return True

    async def _lock(self) -> bool:
        seconds = self._chance.uniform(0.5, 4)
        if self._locked.locked():
            return False
        async with self._locked, database_locked(self._installation):
            await asyncio.sleep(seconds)
        return True

    async def _trouble(self) -> bool:
        mood, seconds = self._chance.choice(self._moods), self._chance.uniform(2, 8)
        mood.trouble = True
        await asyncio.sleep(seconds)
        mood.trouble = False
        return True


@dataclass
class Figures:
    """Of all rounds together."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    balance: Balance = field(default_factory=Balance)
    one_offs: int = 0
    triggers: int = 0
    healed_after: list[float] = field(default_factory=list)
    """Seconds from the last fault until every job had run, or skipped, an occurrence due since."""


async def play(installation: Installation, receiver: Receiver, *, number: int, seed: int,
               seconds: float) -> Figures:  # fmt: skip
    """One round. Its jobs are deleted at the end if their accounts balance."""
    chance = random.Random(f"{seed}/{number}")
    watched, moods = Watched(installation, receiver), []
    for kind in KINDS:
        job = f"{kind.name}-{number}"
        if kind.moody:
            receiver.manners[job] = mood = Mood(random.Random(f"{seed}/{number}/{kind.name}"))
            moods.append(mood)
        await watched.every(job, kind.every, 2, **kind.in_round(number))
    blows = Blows(installation, moods, chance)
    asking = asyncio.create_task(_ask_now_and_then(watched, number, random.Random(f"{seed}/{number}/asking")))
    await blows.deal(seconds)
    asking.cancel()
    await asyncio.wait({asking})
    if not asking.cancelled() and (error := asking.exception()):
        raise error
    began = time.monotonic()
    jobs = list(watched.anchors)
    going = await asyncio.gather(*(watched.goes_on(job, began + HEALED_WITHIN) for job in jobs))
    stuck = [job for job, goes in zip(jobs, going, strict=True) if not goes]
    healed_after = time.monotonic() - began
    beside = [f"{kind.name}-{number}" for kind in KINDS if kind.may_overlap]
    group = [f"{kind.name}-{number}" for kind in KINDS if kind.group]
    found = await watched.settle(side_by_side=beside, groups=[group], frozen=blows.stood_still)
    found.findings += [Finding("stuck", job, f"not going {HEALED_WITHIN:.0f} s after all") for job in stuck]
    if not found.findings:
        await watched.delete()
    triggers = sum(len(keys) for keys in watched.asked.values())
    return Figures(1, blows.dealt, found, len(watched.singles), triggers, [healed_after])


async def _ask_now_and_then(watched: Watched, number: int, chance: random.Random) -> None:
    """One-offs and triggers, each asked for until somebody answers."""
    for count in range(1_000_000):
        await asyncio.sleep(chance.uniform(0.5, 3))
        if chance.random() < 0.5:
            await watched.once(f"once-{number}-{count}", chance.randrange(3))
        else:
            status = await watched.trigger(chance.choice(list(watched.anchors)), f"asked-{number}-{count}")
            assert status in (202, 409), status


async def play_all(data_dir: Path, *, rounds: int, seconds: float, seed: int,
                   tell: Callable[[int, Figures], None] = lambda _, __: None) -> Figures:  # fmt: skip
    """``rounds`` rounds in one installation with two workers."""
    total = Figures()
    receiver = await Receiver().start()
    try:
        async with installed(data_dir, "--workers", "2") as installation:
            for number in range(1, rounds + 1):
                one = await play(installation, receiver, number=number, seed=seed, seconds=seconds)
                total.rounds += 1
                total.faults += one.faults
                total.balance.add(one.balance)
                total.one_offs += one.one_offs
                total.triggers += one.triggers
                total.healed_after += one.healed_after
                tell(number, one)
    finally:
        await receiver.stop()
    return total


def table(figures: Figures) -> Table:
    found = figures.balance
    shown = Table(title="Random faults", show_header=False)
    lines: list[tuple[str, object]] = [
        ("rounds", figures.rounds),
        *sorted(figures.faults.items()),
        ("occurrences planned", found.planned),
        ("one-offs, triggers", f"{figures.one_offs}, {figures.triggers}"),
        ("deliveries", found.deliveries),
        (
            "lost, unfinished, unrecorded",
            len(found.of_kind("lost", "unfinished", "unrecorded", "contradicted")),
        ),
        ("overlaps", len(found.of_kind("overlap"))),
        ("overlaps with a lost lease", len(found.named)),
        ("repeats not to be recognised", len(found.of_kind("unrecognisable"))),
        ("stuck", len(found.of_kind("stuck"))),
        ("early", len(found.of_kind("early"))),
        ("delivered again, retried", f"{found.again}, {found.retries}"),
        ("dead letters", found.dead_lettered),
        ("skipped, missed", f"{found.skipped}, {found.missed}"),
        ("healed after, at most", f"{max(figures.healed_after):.1f} s"),
    ]
    for name, value in lines:
        shown.add_row(name, str(value))
    return shown


async def _until_stopped(playing: Coroutine[Any, Any, Figures]) -> Figures:
    """Stops what it started when it is told to end, in the background too."""
    task = asyncio.create_task(playing)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=30, help="of faults in a round")
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--data-dir", type=Path, default=None, help="kept, with the logs; else a new one")
    given = options.parse_args()
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    data_dir = given.data_dir or Path(tempfile.mkdtemp(prefix="carillon-faults-")) / "data"
    out = Console(width=160)
    out.print(f"seed {seed}, data in {data_dir}")

    def tell(number: int, one: Figures) -> None:
        found, faults = one.balance, sum(one.faults.values())
        named, healed = f"{len(found.named)} overlaps with a lost lease", one.healed_after[0]
        said = f"{faults} faults, {found.deliveries} deliveries, {named}, healed after {healed:.1f} s"
        out.print(f"round {number}: {said}", highlight=False)
        for finding in found.findings:
            out.print(f"  {finding}", highlight=False)

    playing = play_all(data_dir, rounds=given.rounds, seconds=given.seconds, seed=seed, tell=tell)
    figures = asyncio.run(_until_stopped(playing))
    out.print(table(figures))
    sys.exit(1 if figures.balance.findings else 0)


if __name__ == "__main__":
    main()
