"""Targets that take longer than the interval of their job, and reading what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web

from tests.fleet import Fleet, fresh
from tests.sink import Arrival, Sink
from tests.workflows.asking import Job, told
from workflows.contracts.records import ExecutionRow

EVERY = timedelta(seconds=2)
TAKES = 3.0
SLACK = 1.9
"""What a start may be late by on a busy machine, less than the interval; order and counts are exact."""


@dataclass
class Slow:
    """A target that takes its time, and knows who is connected."""

    seconds: float = TAKES
    open: int = 0
    most: int = 0
    broken_off: list[str] = field(default_factory=list)

    async def answer(self, arrival: Arrival, _: int) -> web.Response:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.broken_off.append(arrival.key)
            raise
        finally:
            self.open -= 1
        return web.Response(text="ok")


async def create(fleet: Fleet, sink: Sink, slow: Slow, policy: str, **fields: Any) -> tuple[str, Job]:
    name = fresh(policy)
    sink.answers[f"/{name}"] = slow.answer
    concurrency = {"policy": policy, **fields.pop("concurrency", {})}
    definition = {
        "schedule": {"every": EVERY.total_seconds()},
        "concurrency": concurrency,
        "target": {"url": sink.url(f"/{name}")},
        **fields,
    }
    return f"/{name}", await fleet.create(name, definition)


def due(arrival: Arrival) -> datetime:
    return datetime.fromisoformat(arrival.headers["carillon-scheduled-time"])


def slots(arrivals: list[Arrival]) -> list[int]:
    """Which occurrences ran, in the order of their starts, counted from the first."""
    first = due(arrivals[0])
    return [round((due(one) - first) / EVERY) for one in arrivals]


def after_due(arrivals: list[Arrival]) -> list[float]:
    """Seconds from due to start."""
    return [one.at - due(one).timestamp() for one in arrivals]


def by_slot(rows: list[ExecutionRow]) -> list[tuple[str, str | None, int]]:
    return told(sorted(rows, key=lambda row: row.scheduled_time))
