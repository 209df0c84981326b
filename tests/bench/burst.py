"""N jobs due in the same second: how late is each, seen by the worker and by the receiver.

``python -m tests.bench.burst --jobs 200 --rounds 3``. The peer in the same run is a bare aiohttp loop that
sends as many requests at one instant, over as many connections as a worker has places.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

from tests.processes.conftest import Installation, installed
from tests.sink import Sink

CREATING = 16
"""Creations at once."""


@dataclass(frozen=True)
class Lateness:
    """Seconds after due; ``early`` counts what came before."""

    count: int
    early: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, late: Sequence[float]) -> Lateness:
        ranked = sorted(late)
        p99 = ranked[math.ceil(0.99 * len(ranked)) - 1]
        early = sum(one < 0 for one in ranked)
        return cls(len(ranked), early, ranked[len(ranked) // 2], p99, ranked[-1])


async def carillon(jobs: int, lead_s: float, data_dir: Path) -> dict[str, Lateness]:
    """Create ``jobs`` one-offs for one instant and wait for all of them."""
    sink = await Sink().start()
    try:
        async with installed(data_dir) as installation:
            due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lead_s)
            places = asyncio.Semaphore(CREATING)

            async def create(number: int) -> None:
                async with places:
                    await installation.create(
                        id=f"burst-{number}",
                        schedule={"at": due.isoformat()},
                        target={"type": "http", "url": sink.url("/burst"), "body": {"n": number}},
                    )

            await asyncio.gather(*(create(number) for number in range(jobs)))
            if datetime.now(UTC) >= due:
                raise SystemExit(f"{jobs} jobs could not be created within {lead_s} s; raise --lead")
            await sink.wait_for("/burst", jobs, within=lead_s + 120)
            arrivals = [arrival.at - due.timestamp() for arrival in sink.at("/burst")]
            written = [await _lateness_of(installation, f"burst-{number}") for number in range(jobs)]
            return {"written": Lateness.of(written), "arrival": Lateness.of(arrivals)}
    finally:
        await sink.stop()


async def _lateness_of(installation: Installation, job: str) -> float:
    rows = await installation.until_executions(job, lambda rows: bool(rows and rows[0]["ended_at"]))
    return float(rows[0]["lateness_ms"]) / 1000


async def bare_loop(requests: int, connections: int) -> dict[str, Lateness]:
    """The limit: the same requests by a client that does nothing else."""
    sink = await Sink().start()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:
        due = time.time() + 1
        await asyncio.sleep(due - time.time())

        async def post(number: int) -> None:
            async with session.post(sink.url("/bare"), json={"n": number}) as answer:
                await answer.read()

        await asyncio.gather(*(post(number) for number in range(requests)))
        arrivals = [arrival.at - due for arrival in sink.at("/bare")]
    await sink.stop()
    return {"arrival": Lateness.of(arrivals)}


async def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as directory:
            ours = await carillon(arguments.jobs, arguments.lead, Path(directory) / "data")
        peer = await bare_loop(arguments.jobs, arguments.connections)
        for who, measured in (("carillon", ours), ("bare loop", peer)):
            for what, lateness in measured.items():
                results.append({"round": number + 1, "who": who, "what": what, **asdict(lateness)})
    return results


def report(results: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> None:
    table = Table(title=f"{arguments.jobs} HTTP jobs due in one second")
    for column in ("round", "who", "what", "count", "early", "p50", "p99", "longest"):
        table.add_column(column, justify="right")
    for row in results:
        table.add_row(*(f"{one:.3f}" if isinstance(one, float) else str(one) for one in row.values()))
    Console().print(table)
    if arguments.json:
        about = {
            "machine": platform.platform(),
            "python": sys.version.split()[0],
            "temporalio": version("temporalio"),
            "settings": vars(arguments) | {"json": None},
        }
        Path(arguments.json).write_text(json.dumps({"about": about, "results": results}, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lead", type=float, default=25, help="seconds from the start to the instant")
    parser.add_argument("--connections", type=int, default=100, help="of the bare loop")
    parser.add_argument("--json", help="file for the figures")
    given = parser.parse_args()
    report(asyncio.run(measure(given)), given)
