"""A seeded random mix of faults over jobs of several kinds, and the ledger at the end of each round.

``make faults ARGS="--rounds 20 --seconds 30 --seed 7"``. A round makes its own jobs, deals a blow each
second or so to the processes, the database, the target and the receiver of alerts, while people ask for
backfills, redrives and the like, and change the jobs; heals everything, waits until every job goes on and
what was asked for is done, pauses them and balances their accounts. In the end the incidents of all rounds
are balanced. What the seed decides is the order of blows, wishes, changes and moods; what they meet is up to
the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.installation import settings_for
from tests.faults.accounts import Account, Balance, Finding
from tests.faults.alerts import TOLD, tell, unopened
from tests.faults.asking import BEFORE, Asking
from tests.faults.blows import Blows
from tests.faults.changing import Changing
from tests.faults.crowds import Limit
from tests.faults.figures import Figures, table
from tests.faults.meddling import Meddled, Meddling
from tests.faults.moods import KINDS, AlertMood, Kind, Mood
from tests.faults.processes import incidents_of, tell_alerts_to
from tests.faults.receiver import Receiver, take
from tests.faults.second_api import SecondApi, second_api
from tests.faults.watched import Watched
from tests.processes.conftest import Installation, installed

HEALED_WITHIN = 120.0
"""Seconds. A target may be in a mood to hang until the time-out of 12 s, for some attempts in a row."""
RUN_AGAIN_WITHIN = 90.0
"""Seconds from then on for backfills, redrives and reruns."""
TOLD_WITHIN = 240.0
"""Seconds from the last round on. A message is tried at intervals that double from two seconds on, and
half a minute after a worker that died over it."""


def _named(number: int, *, group: str | None = None, meddled: str | None = None) -> list[str]:
    """Jobs of a round."""
    return [
        f"{kind.name}-{number}"
        for kind in KINDS
        if (group is None or kind.group == group) and (meddled is None or meddled in kind.meddled)
    ]


def _meddled(number: int) -> Meddled:
    by_name = {f"{kind.name}-{number}": kind for kind in KINDS}
    return Meddled(
        paused=_named(number, meddled="paused"),
        skipped=_named(number, meddled="skipped"),
        moved=_named(number, meddled="moved"),
        joining={job: f"{by_name[job].group}-{number}" for job in _named(number, meddled="joining")},
        mortal={
            job: (by_name[job].every, by_name[job].in_round(number))
            for job in _named(number, meddled="mortal")
        },
        groups=[f"pool-{number}"],
    )


async def play(installation: Installation, second: SecondApi, receiver: Receiver, *, number: int, seed: int,
               seconds: float) -> Figures:  # fmt: skip
    """One round. Its jobs are deleted at the end if their accounts balance."""
    chance = random.Random(f"{seed}/{number}")
    watched, moods = Watched(installation, receiver), []
    receiver.alerted = alerts = AlertMood(random.Random(f"{seed}/{number}/alerts"))
    for kind in KINDS:
        if kind.moody:
            mood = Mood(random.Random(f"{seed}/{number}/{kind.name}"))
            receiver.manners[f"{kind.name}-{number}"] = mood
            moods.append(mood)
        await watched.every(f"{kind.name}-{number}", kind.every, 2, before=BEFORE, **kind.in_round(number))
    blows = Blows(installation, second, moods, alerts, chance)
    mortal = _named(number, meddled="mortal")
    wishes = Asking(
        watched, number, random.Random(f"{seed}/{number}/asking"),
        fillable={f"{kind.name}-{number}": kind.at_once for kind in KINDS if kind.fillable},
        lasting=[job for job in watched.anchors if job not in mortal],
    )  # fmt: skip
    changing, meddled = Changing(watched), _meddled(number)
    changing.limits = {name: Limit(name, [(0, math.inf, 1)]) for name in meddled.groups}
    meddling = Meddling(changing, meddled, number, random.Random(f"{seed}/{number}/meddling"))
    await asyncio.gather(blows.deal(seconds), wishes.go_on(seconds), meddling.go_on(seconds))
    began = time.monotonic()
    await wishes.at_the_end()
    jobs = list(watched.anchors)
    going = await asyncio.gather(*(watched.goes_on(job, began + HEALED_WITHIN) for job in jobs))
    stuck = [job for job, goes in zip(jobs, going, strict=True) if not goes]
    healed_after = time.monotonic() - began
    for mood in moods:
        mood.calm = True
    await watched.until_run_again(RUN_AGAIN_WITHIN)
    run_again_after = time.monotonic() - began - healed_after
    beside = [f"{kind.name}-{number}" for kind in KINDS if kind.may_overlap]
    allowed = [_own_limit(kind, number) for kind in KINDS if kind.may_overlap]
    pool = [job for job in _named(number, group="pool") if job not in meddled.joining]
    found = await watched.settle(
        side_by_side=[*beside, *watched.buried],
        groups=[_named(number, group="twins")],
        limits=[*allowed, *meddling.limits(pool)],
        frozen=blows.stood_still,
    )
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
        meddled=meddling.done,
        healed_after=[healed_after],
        run_again_after=[run_again_after],
        accounts=[account for account in accounts if account.job not in watched.buried],
    )


def _own_limit(kind: Kind, number: int) -> Limit:
    job, places = f"{kind.name}-{number}", kind.definition["concurrency"]["limit"]
    return Limit(f"{job} itself", [(-math.inf, math.inf, places)], {job: [(-math.inf, math.inf)]})


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
        async with (
            installed(data_dir, "--workers", "2") as installation,
            second_api(installation, random.Random(f"{seed}/doors")) as second,
        ):
            await tell_alerts_to(installation, receiver.alert_url)
            receiver.doors = [f"http://127.0.0.1:{settings_for(data_dir).api_port}", second.url]
            for number in range(1, rounds + 1):
                one = await play(installation, second, receiver, number=number, seed=seed, seconds=seconds)
                total.add(one)
                tell_round(number, one)
            receiver.alerted = take
            total.add(await told(installation, receiver, total.accounts))
    finally:
        await receiver.stop()
    return total


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
        dealt = f"{faults} faults, {one.meddled} changes, {found.deliveries} deliveries"
        said = f"{dealt}, {named}, healed after {healed:.1f} s, {again}"
        out.print(f"round {number}: {said}", highlight=False)
        _name(out, found.findings)

    playing = play_all(data_dir, rounds=given.rounds, seconds=given.seconds, seed=seed, tell_round=tell_round)
    figures = asyncio.run(_until_stopped(playing))
    _name(out, figures.balance.of_kind(*TOLD))
    out.print(table(figures))
    sys.exit(1 if figures.balance.findings else 0)


if __name__ == "__main__":
    main()
