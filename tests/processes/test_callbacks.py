"""A run with its target outlives the processes that delivered it: worker and API are killed in between.

``CARILLON_CALLBACK_SECONDS=180 pytest tests/processes/test_callbacks.py -s -o timeout=400`` is the long run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle

import httpx
from aiohttp import web

from api.cli.ports import choose_ports
from infra.installation import settings_for
from tests.processes.conftest import LEASE, Installation, until_ready
from tests.processes.test_two_apis import SecondApi
from tests.sink import Arrival, Sink

SECONDS = float(os.environ.get("CARILLON_CALLBACK_SECONDS", "6"))
BEAT = 0.5


async def accept(_: Arrival, __: int) -> web.Response:
    return web.Response(status=202)


@dataclass
class Reporter:
    """A target at work: it reports through any API that answers, and takes turns."""

    client: httpx.AsyncClient
    bases: list[str]
    callback: str
    statuses: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    """Seconds between two beats that were taken."""

    async def beat(self, seconds: float) -> None:
        """Bounded by ``seconds`` and one call."""
        turns = cycle(self.bases)
        last = begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            if await self.say(next(turns), "heartbeat") == "204":
                self.longest = max(self.longest, time.monotonic() - last)
                last = time.monotonic()
            await asyncio.sleep(BEAT)

    async def say(self, base: str, what: str) -> str:
        path = httpx.URL(self.callback).path
        try:
            answer = await self.client.post(f"{base}{path}/{what}")
        except httpx.TransportError:
            said = "broken"
        else:
            said = str(answer.status_code)
        self.statuses[said] += 1
        return said


async def test_a_run_with_its_target_outlives_worker_and_api(installation: Installation, sink: Sink) -> None:
    """One delivery while its target beats; silence brings a second, and the first token is refused."""
    port = choose_ports("127.0.0.1", {"--api-port": 0})["--api-port"]
    second_api = SecondApi(installation, port)
    await second_api.start()
    own = f"http://127.0.0.1:{settings_for(installation.data_dir).api_port}"
    other = f"http://127.0.0.1:{port}"
    for job in ("long", "silent"):
        sink.answers[f"/{job}"] = accept
    try:
        await until_ready(other)
        for job in ("long", "silent"):
            await installation.create(
                id=job, schedule={"in": 1}, completion="callback",
                target={"type": "http", "url": sink.url(f"/{job}")},
            )  # fmt: skip
        async with httpx.AsyncClient(timeout=5) as client:
            told, target = await asyncio.gather(
                _silence(sink, client, other), _work(installation, sink, client, [own, other])
            )
        print(f"{SECONDS:g} s: {dict(target.statuses)}, {target.longest:.2f} s at most between beats")  # noqa: T201
        assert target.longest < LEASE
        assert set(target.statuses) <= {"204", "broken"}
        assert len(sink.at("/long")) == 1
        await until_ready(own)  # it is started again
        for job, delivery in (("long", 1), ("silent", 2)):
            [row] = await installation.until_executions(job, lambda rows: rows[0]["outcome"] == "succeeded")
            assert [(one["attempt"], one["delivery"]) for one in row["attempts"]] == [(1, delivery)]
    finally:
        await second_api.kill()
    assert told == ["409", "409", "204", "409"]
    arrivals = [*sink.at("/long"), *sink.at("/silent")]
    tokens = [one.headers["carillon-callback"].rpartition("/")[2] for one in arrivals]
    logs = b"".join(log.read_bytes() for log in (installation.data_dir / "logs").iterdir()).decode()
    assert not any(token[:40] in logs for token in tokens)


async def _work(
    installation: Installation, sink: Sink, client: httpx.AsyncClient, bases: list[str]
) -> Reporter:
    """Beat all the time, while the worker and an API are killed, then report success."""
    [arrival] = await sink.wait_for("/long", 1)
    target = Reporter(client, bases, arrival.headers["carillon-callback"])
    working = asyncio.create_task(target.beat(SECONDS))
    await asyncio.sleep(SECONDS / 4)
    installation.kill_worker()
    await asyncio.sleep(SECONDS / 4)
    assert installation.up is not None
    os.kill(installation.up.child("carillon api"), signal.SIGKILL)
    await working
    assert await target.say(bases[1], "complete") == "204"
    return target


async def _silence(sink: Sink, client: httpx.AsyncClient, base: str) -> list[str]:
    """Say nothing until the next delivery comes; what its and the first one's token are answered then."""
    await sink.wait_for("/silent", 1)
    first, again = await sink.wait_for("/silent", 2, within=LEASE + 30)
    assert (again.execution_id, first.delivery, again.delivery) == (first.execution_id, 1, 2)
    stale = Reporter(client, [base], first.headers["carillon-callback"])
    newest = Reporter(client, [base], again.headers["carillon-callback"])
    return [
        await stale.say(base, "heartbeat"),
        await stale.say(base, "complete"),
        await newest.say(base, "complete"),
        await stale.say(base, "complete"),
    ]
