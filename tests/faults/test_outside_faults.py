"""The server, the API and the database fail around runs in every phase."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from aiohttp import web

from tests.faults.processes import ask, database_locked, frozen, kill, pids, send, until_started
from tests.faults.receiver import Caller, Receiver
from tests.faults.watched import Watched
from tests.processes.conftest import TENANT, Installation


async def test_the_server_killed_and_started_again(watched: Watched, receiver: Receiver) -> None:
    """A run in the hold, one in mid-run, one whose answer cannot be reported, and a job that goes on."""
    back = asyncio.Event()
    [server] = pids(watched.installation, "server")

    async def kill_server(caller: Caller) -> web.StreamResponse:
        response = await caller.answer_now()
        if caller.number == 0:
            send(server, signal.SIGKILL)
        return response

    async def wait_for_server(caller: Caller) -> web.StreamResponse:
        await back.wait()
        return caller.answer()

    receiver.manners |= {"unreported": kill_server, "through": wait_for_server}
    await watched.every("going", 2)
    await watched.once("due-meanwhile", 2)
    await watched.once("through")
    await receiver.wait_for("through")
    await watched.once("unreported")
    await receiver.wait_for("unreported")
    await until_started(watched.installation, "server", other_than=[server])
    back.set()
    for job in ("due-meanwhile", "through", "unreported"):
        assert await watched.until_ended(job) == "succeeded"
    assert await watched.goes_on("going", time.monotonic() + 30)
    found = await watched.settle()
    assert found.findings == []


class Halfway:
    """A creation whose API process dies when it has reserved the id and Temporal has not answered yet."""

    def __init__(self, watched: Watched, job: str) -> None:
        self.installation = watched.installation
        self.job = job
        self.database = self.installation.data_dir / "carillon.db"
        self.body = {"id": job, "schedule": {"in": 1}, "target": watched.receiver.target(job)}

    async def leave(self, die: Callable[[], object]) -> None:
        """The server stands still meanwhile, so that the start stays on its way."""
        [server] = pids(self.installation, "server")
        async with frozen(server):
            asked = asyncio.create_task(self._ask())
            async with asyncio.timeout(10):
                while self.status() != "reserved":
                    await asyncio.sleep(0.02)
            die()
            assert isinstance(await asked, httpx.TransportError)

    async def _ask(self) -> httpx.Response | httpx.TransportError:
        headers = {"idempotency-key": f"key-{self.job}"}
        try:
            return await self.installation.api.post("/jobs", json=self.body, headers=headers)
        except httpx.TransportError as error:
            return error

    async def again(self) -> dict[str, Any]:
        headers = {"idempotency-key": f"key-{self.job}"}
        answer = await ask(self.installation, "POST", "/jobs", json=self.body, headers=headers)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def status(self) -> str | None:
        with sqlite3.connect(self.database) as connection:
            query = "SELECT status FROM jobs WHERE tenant = ? AND job = ?"
            found = connection.execute(query, (TENANT, self.job)).fetchone()
        connection.close()
        return None if found is None else str(found[0])

    def grow_old(self) -> None:
        """The sweeper leaves young reservations to whoever makes them."""
        past = datetime.now(UTC) - timedelta(minutes=3)
        with sqlite3.connect(self.database, timeout=10) as connection:
            values = (int(past.timestamp() * 1_000_000), self.job)
            connection.execute("UPDATE jobs SET created_at = ? WHERE job = ?", values)
        connection.close()


async def test_the_api_killed_between_accept_and_start_and_the_request_repeated(
    watched: Watched, receiver: Receiver
) -> None:
    """The repeat carries the first on: one job, one run."""
    half = Halfway(watched, "half")
    await half.leave(lambda: kill(watched.installation, "api"))
    made = await half.again()
    assert (await half.again())["created_at"] == made["created_at"]
    await receiver.wait_for("half")
    watched.singles["half"] = datetime.fromisoformat(made["schedule"]["at"]).timestamp()
    assert await watched.until_ended("half") == "succeeded"
    found = await watched.settle()
    assert (found.findings, found.deliveries) == ([], 1)


async def test_the_api_killed_between_accept_and_start_and_never_asked_again(
    watched: Watched, harmed: Installation
) -> None:
    """A process that comes later settles it as Temporal knows it: the job is there or its id is free,
    and either way the next request finds a clear state."""
    half = Halfway(watched, "orphan")

    def die() -> None:
        send(pids(harmed, "api")[0], signal.SIGSTOP)
        half.grow_old()
        kill(harmed, "api")

    await half.leave(die)
    async with asyncio.timeout(60):
        while half.status() == "reserved":
            await asyncio.sleep(0.1)
    found = await ask(harmed, "GET", "/jobs/orphan")
    assert (half.status(), found.status_code) in [("active", 200), ("completed", 200), ("deleted", 404)]


async def test_the_database_away_while_a_worker_is_killed(watched: Watched, receiver: Receiver) -> None:
    """What could not be written waits in the jobs, outlives the worker, and is there afterwards."""
    await watched.every("unwritten", 1)
    await receiver.wait_for("unwritten", 2)
    async with database_locked(watched.installation):
        before = len(receiver.at("unwritten"))
        await receiver.wait_for("unwritten", before + 2)
        old = pids(watched.installation, "worker")
        kill(watched.installation, "worker")
        await until_started(watched.installation, "worker", other_than=old)
        killed = len(receiver.at("unwritten"))
        await receiver.wait_for("unwritten", killed + 2)
    found = await watched.settle()
    assert found.findings == []
