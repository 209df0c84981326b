"""The processes of an installation, to be killed, frozen and locked out, and what is known of its jobs."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta
from typing import Any

import httpx

from api.cli.token import issue_token
from infra.installation import settings_for
from tests.faults.accounts import Row
from tests.faults.alerts import IncidentRow
from tests.processes.conftest import TENANT, Installation

LEASE = 3
"""Seconds; the least that a job may ask for."""
PARTS = {"worker": "carillon worker", "api": "carillon api", "server": "server start-dev"}


def pids(installation: Installation, part: str) -> list[int]:
    """The processes of one of ``PARTS``, in no order."""
    assert installation.up is not None
    return [pid for pid, command in installation.up.children().items() if PARTS[part] in command]


def kill(installation: Installation, part: str, number: signal.Signals = signal.SIGKILL) -> int:
    """How many processes of this part there were to kill."""
    found = pids(installation, part)
    for pid in found:
        send(pid, number)
    return len(found)


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


async def until_started(installation: Installation, part: str, *, other_than: Sequence[int] = (),
                        count: int = 1, within: float = 60) -> list[int]:  # fmt: skip
    async with asyncio.timeout(within):
        while len(found := [pid for pid in pids(installation, part) if pid not in other_than]) < count:
            await asyncio.sleep(0.05)
    return found


@asynccontextmanager
async def database_locked(installation: Installation) -> AsyncIterator[None]:
    """Nobody else reads or writes a row meanwhile."""
    lock = sqlite3.connect(installation.data_dir / "carillon.db", isolation_level=None, timeout=0)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    lock.execute("BEGIN EXCLUSIVE")
                    break
                except sqlite3.OperationalError:  # somebody writes, and may be frozen over it
                    await asyncio.sleep(0.01)
        yield
        lock.execute("ROLLBACK")
    finally:
        lock.close()


@asynccontextmanager
async def frozen(*stopped: int) -> AsyncIterator[None]:
    for pid in stopped:
        send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            send(pid, signal.SIGCONT)


async def ask(installation: Installation, method: str, path: str, within: float = 60,
              **options: Any) -> httpx.Response:  # fmt: skip
    """A call that is made again until it is answered by somebody who can: 503 and a broken connection
    pass. Give a change an ``Idempotency-Key`` where the second time would not be the first. How often it was
    made is in the answer's ``extensions["tries"]``."""
    end, tries = time.monotonic() + within, 0
    while True:
        tries += 1
        try:
            answer = await installation.api.request(method, path, **options)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.status_code not in (429, 503):
            answer.extensions["tries"] = tries
            return answer
        assert time.monotonic() < end, f"{method} {path}: {answer and answer.text}"
        await asyncio.sleep(0.3)


async def rows_of(installation: Installation, job: str, *, deleted: bool = False) -> list[Row]:
    """Of the present generation; ``deleted``: of all there were."""
    rows: list[Row] = []
    path, of = ("/executions", {"job": job}) if deleted else (f"/jobs/{job}/executions", {})
    cursor = None
    while True:
        query = {"limit": 200, **of} | ({"cursor": cursor} if cursor else {})
        answer = await ask(installation, "GET", path, params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        rows += [Row.of(item) for item in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            return rows


async def letters_of(installation: Installation, **wanted: str) -> list[dict[str, Any]]:
    """The dead letters that are open or being redriven; ``wanted``: ``job``, ``since``, ``until``."""
    letters: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 200, **wanted}
    while True:
        answer = await ask(installation, "GET", "/dead-letters", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        letters += page["items"]
        if page["next_cursor"] is None:
            return letters
        query["cursor"] = page["next_cursor"]


async def tell_alerts_to(installation: Installation, url: str) -> None:
    """The tenant's own alert URL; workers know it ten seconds later at most."""
    scope, ttl = "tenant:write", timedelta(minutes=5)
    token = issue_token(
        settings_for(installation.data_dir), tenant=TENANT, scope=scope, subject="tester", ttl=ttl
    )
    headers = {"authorization": f"Bearer {token}"}
    answer = await ask(installation, "PATCH", "/tenant", json={"alert_url": url}, headers=headers)
    assert answer.status_code == 200, answer.text


def incidents_of(installation: Installation) -> list[IncidentRow]:
    """Each incident there ever was: the API lists the open ones only."""
    read_only = f"file:{installation.data_dir / 'carillon.db'}?mode=ro"
    with closing(sqlite3.connect(read_only, uri=True, timeout=10)) as database:
        found = database.execute(
            "SELECT id, kind, job, notice, recovery_notice, recovered_at IS NOT NULL FROM incidents"
            " WHERE tenant = ?",
            [TENANT],
        ).fetchall()
    return [
        IncidentRow(id_, kind, job, notice, recovery, bool(recovered))
        for id_, kind, job, notice, recovery, recovered in found
    ]


def planned(anchor: float, every: int, until: float) -> list[float]:
    """Each instant of an interval before ``until``, its anchor first."""
    return [anchor + every * number for number in range(max(0, int((until - anchor) // every) + 1))]


def soon(seconds: int) -> str:
    """The whole second that begins in ``seconds`` or up to one more."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1 + seconds))
