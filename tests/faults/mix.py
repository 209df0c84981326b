"""A seeded random mix of faults over jobs of several kinds, and the ledger at the end of each round.

``make faults ARGS="--rounds 20 --seconds 30 --seed 7"``. A round makes its own jobs, deals a blow each
second or so to the processes, the database, the target and the receiver of alerts, while people ask for
backfills, redrives and the like; heals everything, waits until every job goes on and what was asked for is
done, pauses them and balances their accounts. In the end the incidents of all rounds are balanced. What
the seed decides is the order of blows, wishes and moods; what they meet is up to the machine.
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

from tests.faults.accounts import Account, Balance, Finding
from tests.faults.again import RUN_AGAIN
from tests.faults.alerts import TOLD, tell, unopened
from tests.faults.asking import BEFORE, Asking
from tests.faults.ledger import NOTICED_WITHIN
from tests.faults.moods import KINDS, AlertMood, Mood
from tests.faults.processes import (
    LEASE,
    database_locked,
    frozen,
    incidents_of,
    pids,
    send,
    tell_alerts_to,
)
from tests.faults.receiver import Receiver, take
from tests.faults.watched import Watched
from tests.processes.conftest import Installation, installed

DEATHS, TRUCE = 8, 25.0
"""After so many deaths of a part it is left alone for so many seconds: ``carillon up`` gives a child up
that never lives for ten seconds, and that is no fault to test here."""
HEALED_WITHIN = 120.0
"""Seconds. A target may be in a mood to hang until the time-out of 12 s, for some attempts in a row."""
RUN_AGAIN_WITHIN = 90.0
"""Seconds from then on for backfills, redrives and reruns."""
TOLD_WITHIN = 240.0
"""Seconds from the last round on. A message is tried at intervals that double from two seconds on, and
half a minute after a worker that died over it."""


class Blows:
    """The faults, dealt at random until they are to end. Each heals by itself."""

    def __init__(
        self, installation: Installation, moods: list[Mood], alerts: AlertMood, chance: random.Random
    ) -> None:
        self._installation = installation
        self._moods = moods
        self._alerts = alerts
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
            "target in trouble": (2, lambda: self._trouble(self._chance.choice(self._moods))),
            "alerts in trouble": (2, lambda: self._trouble(self._alerts)),
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

    async def _trouble(self, mood: Mood | AlertMood) -> bool:
        seconds = self._chance.uniform(2, 8)
        mood.trouble = True
        await asyncio.sleep(seconds)
        mood.trouble = False
        return True


@dataclass
class Figures:
    """Of a round, or of all rounds together."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    balance: Balance = field(default_factory=Balance)
    one_offs: int = 0
    triggers: int = 0
    healed_after: list[float] = field(default_factory=list)
    """Seconds from the last fault until every job had run, or skipped, an occurrence due since."""
    run_again_after: list[float] = field(default_factory=list)
    """Seconds from then on until backfills, redrives and reruns had ended."""
    messages: int = 0
    incidents: int = 0
    accounts: list[Account] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        self.faults += other.faults
        self.balance.add(other.balance)
        for name in ("rounds", "one_offs", "triggers", "messages", "incidents"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("healed_after", "run_again_after", "accounts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


async def play(installation: Installation, receiver: Receiver, *, number: int, seed: int,
               seconds: float) -> Figures:  # fmt: skip
    """One round. Its jobs are deleted at the end if their accounts balance."""
    chance = random.Random(f"{seed}/{number}")
    watched, moods = Watched(installation, receiver), []
    receiver.alerted = alerts = AlertMood(random.Random(f"{seed}/{number}/alerts"))
    for kind in KINDS:
        job = f"{kind.name}-{number}"
        if kind.moody:
            receiver.manners[job] = mood = Mood(random.Random(f"{seed}/{number}/{kind.name}"))
            moods.append(mood)
        await watched.every(job, kind.every, 2, before=BEFORE, **kind.in_round(number))
    blows = Blows(installation, moods, alerts, chance)
    fillable = [f"{kind.name}-{number}" for kind in KINDS if kind.fillable]
    wishes = Asking(watched, number, random.Random(f"{seed}/{number}/asking"), fillable=fillable)
    await asyncio.gather(blows.deal(seconds), wishes.go_on(seconds))
    began = time.monotonic()
    await wishes.at_the_end()
    jobs = list(watched.anchors)
    going = await asyncio.gather(*(watched.goes_on(job, began + HEALED_WITHIN) for job in jobs))
    stuck = [job for job, goes in zip(jobs, going, strict=True) if not goes]
    healed_after = time.monotonic() - began
    await watched.until_run_again(RUN_AGAIN_WITHIN)
    run_again_after = time.monotonic() - began - healed_after
    beside = [f"{kind.name}-{number}" for kind in KINDS if kind.may_overlap]
    group = [f"{kind.name}-{number}" for kind in KINDS if kind.group]
    found = await watched.settle(side_by_side=beside, groups=[group], frozen=blows.stood_still)
    found.findings += [Finding("stuck", job, f"not going {HEALED_WITHIN:.0f} s after all") for job in stuck]
    accounts = await watched.accounts()
    if not found.findings:
        await watched.delete()
    triggers = sum(len(keys) for keys in watched.asked.values())
    return Figures(
        rounds=1,
        faults=blows.dealt,
        balance=found,
        one_offs=len(watched.singles),
        triggers=triggers - found.reruns,
        healed_after=[healed_after],
        run_again_after=[run_again_after],
        accounts=accounts,
    )


async def told(installation: Installation, receiver: Receiver, accounts: list[Account]) -> Figures:
    """What the alert receiver heard, of all rounds: it may take longer than a round does."""
    end = time.monotonic() + TOLD_WITHIN
    while True:
        incidents, messages = incidents_of(installation), list(receiver.messages)
        findings = [*unopened(accounts, incidents), *tell(incidents, messages)]
        if not (findings or any(one.waits for one in incidents)) or time.monotonic() > end:
            return Figures(balance=Balance(findings), messages=len(messages), incidents=len(incidents))
        await asyncio.sleep(0.5)


async def play_all(data_dir: Path, *, rounds: int, seconds: float, seed: int,
                   tell_round: Callable[[int, Figures], None] = lambda _, __: None) -> Figures:  # fmt: skip
    """``rounds`` rounds in one installation with two workers."""
    total = Figures()
    receiver = await Receiver().start()
    try:
        async with installed(data_dir, "--workers", "2") as installation:
            await tell_alerts_to(installation, receiver.alert_url)
            for number in range(1, rounds + 1):
                one = await play(installation, receiver, number=number, seed=seed, seconds=seconds)
                total.add(one)
                tell_round(number, one)
            receiver.alerted = take
            total.add(await told(installation, receiver, total.accounts))
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
        ("backfilled, redriven, run once more", f"{found.backfilled}, {found.redriven}, {found.reruns}"),
        ("findings of these", len(found.of_kind(*RUN_AGAIN))),
        ("incidents, messages of them", f"{figures.incidents}, {figures.messages}"),
        ("findings of these", len(found.of_kind(*TOLD))),
        ("healed after, at most", f"{max(figures.healed_after):.1f} s"),
        ("all run again behind it, at most", f"{max(figures.run_again_after):.1f} s"),
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


def _name(out: Console, findings: list[Finding]) -> None:
    for finding in findings:
        out.print(f"  {finding}", highlight=False)


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

    def tell_round(number: int, one: Figures) -> None:
        found, faults = one.balance, sum(one.faults.values())
        named, healed = f"{len(found.named)} overlaps with a lost lease", one.healed_after[0]
        again = (
            f"{found.backfilled} backfilled, {found.redriven} redriven, {one.run_again_after[0]:.1f} s more"
        )
        said = (
            f"{faults} faults, {found.deliveries} deliveries, {named}, healed after {healed:.1f} s, {again}"
        )
        out.print(f"round {number}: {said}", highlight=False)
        _name(out, found.findings)

    playing = play_all(data_dir, rounds=given.rounds, seconds=given.seconds, seed=seed, tell_round=tell_round)
    figures = asyncio.run(_until_stopped(playing))
    _name(out, figures.balance.of_kind(*TOLD))
    out.print(table(figures))
    sys.exit(1 if figures.balance.findings else 0)


if __name__ == "__main__":
    main()
