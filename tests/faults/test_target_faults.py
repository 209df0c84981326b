"""A target that hangs, drips, resets, fails for a while, or asks for a wait that makes no sense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from itertools import pairwise
from typing import Any

from aiohttp import web

from tests.faults.accounts import Visit
from tests.faults.overlaps import NOTICED_WITHIN
from tests.faults.processes import ask, rows_of
from tests.faults.receiver import Caller, Manner, Receiver
from tests.faults.watched import Watched

RETRY = {"initial_interval": 1, "jitter": 0, "max_attempts": 4}
BACKOFF = 1.0
AHEAD = 5
"""Seconds by which a date of a target lies ahead."""


def at_first(misbehave: Manner, times: int = 1) -> Manner:
    """Misbehave so many times, then answer as a target should."""

    async def manner(caller: Caller) -> web.StreamResponse:
        return await misbehave(caller) if caller.number < times else caller.answer()

    return manner


def saying(status: int, retry_after: str | Callable[[], str]) -> Manner:
    async def manner(caller: Caller) -> web.StreamResponse:
        text = retry_after if isinstance(retry_after, str) else retry_after()
        return caller.answer(status, retry_after=text)

    return manner


async def reset(caller: Caller) -> web.StreamResponse:
    return caller.reset()


async def fail(caller: Caller) -> web.StreamResponse:
    return caller.answer(500)


def date(form: str, ahead: float = AHEAD) -> Callable[[], str]:
    def text() -> str:
        return time.strftime(form, time.gmtime(time.time() + ahead))

    return text


@dataclass(frozen=True)
class Case:
    manner: Manner
    ends: tuple[str, ...]
    """The outcomes of its attempts."""
    waits: float = BACKOFF
    """Seconds from the end of an attempt to the start of the next, at least."""


LONG, WEEKDAY, ASCTIME = "%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"

CASES = {
    "hangs": Case(at_first(Caller.hang), ("timed_out", "succeeded")),
    "drips": Case(at_first(Caller.drip), ("timed_out", "succeeded")),
    "resets": Case(at_first(reset), ("failed", "succeeded")),
    "fails-a-while": Case(at_first(fail, 2), ("failed", "failed", "succeeded")),
    "negative": Case(at_first(saying(429, "-1")), ("failed", "succeeded")),
    "words": Case(at_first(saying(429, "soon")), ("failed", "succeeded")),
    "past": Case(at_first(saying(429, formatdate(0, usegmt=True))), ("failed", "succeeded")),
    "no-such-date": Case(at_first(saying(503, "Wed, 99 Oct 2026 07:28:00 GMT")), ("failed", "succeeded")),
    "seconds": Case(at_first(saying(503, "3")), ("failed", "succeeded"), 3),
    "fixdate": Case(at_first(saying(429, date(LONG))), ("failed", "succeeded"), AHEAD - 1),
    "rfc-850": Case(at_first(saying(503, date(WEEKDAY))), ("failed", "succeeded"), AHEAD - 1),
    "asctime": Case(at_first(saying(503, date(ASCTIME))), ("failed", "succeeded"), AHEAD - 1),
}
AFAR = {
    "very-long": saying(429, "9999999999"),
    "far-date": saying(503, "Fri, 31 Dec 9999 23:59:59 GMT"),
}
"""What waits for an hour, the most that a target can ask for."""


async def test_targets_that_misbehave(watched: Watched, receiver: Receiver) -> None:
    """Each attempt has its outcome, the same key and an execution id of its own; no wait is shorter than
    the backoff or than what a target may ask for, and none is endless."""
    receiver.manners |= {name: case.manner for name, case in CASES.items()} | AFAR
    for name in (*CASES, *AFAR):
        await watched.every(name, 3600, retry=RETRY, timeout=1)
    for name, case in CASES.items():
        await receiver.wait_for(name, len(case.ends))
        assert await watched.until_ended(name) == "succeeded"
        rows = await rows_of(watched.installation, name)
        assert [outcome for _, _, outcome in rows[0].attempts] == list(case.ends), name
        assert waits(receiver.at(name)) >= case.waits - NOTICED_WITHIN, name
    for name in AFAR:
        [visit] = receiver.at(name)
        shown = await ask(watched.installation, "GET", f"/jobs/{name}/executions")
        assert [row["outcome"] for row in shown.json()["items"]] == ["retrying"]
        assert time.time() - (visit.end or 0) > 2 * BACKOFF
    found = await watched.settle()  # the pause ends what waits
    assert found.findings == []
    assert found.dead_lettered == len(AFAR)


def waits(visits: list[Visit]) -> float:
    """The shortest time between two of them."""
    return min(after.start - before.over for before, after in pairwise(visits))


async def test_a_run_that_was_processed_and_reset_is_repeated_byte_for_byte(
    watched: Watched, receiver: Receiver
) -> None:
    """What a target needs to tell the repeat: the key, the body and the instant are those of the first, the
    attempt is one higher, and a run that somebody asks for anew has a key of its own."""
    seen: list[tuple[dict[str, str], bytes]] = []

    async def remember(caller: Caller) -> web.StreamResponse:
        seen.append((dict(caller.request.headers), await caller.request.read()))
        return caller.reset() if caller.number == 0 else caller.answer()

    body: dict[str, Any] = {"amount": 12.30, "to": "Zoë", "nested": [1, {"b": None, "a": "2"}]}
    receiver.manners["charged"] = remember
    await watched.every("charged", 3600, retry=RETRY, target={**receiver.target("charged"), "body": body})
    await receiver.wait_for("charged", 2)
    assert await watched.until_ended("charged") == "succeeded"
    assert await watched.trigger("charged", "by-hand") == 202
    await receiver.wait_for("charged", 3)
    (first, first_body), (again, again_body), (asked, _) = seen
    assert first_body == again_body
    for name in ("Idempotency-Key", "webhook-id", "Carillon-Scheduled-Time", "Carillon-Job"):
        assert first[name] == again[name], name
    assert [one["Carillon-Attempt"] for one in (first, again, asked)] == ["1", "2", "1"]
    assert asked["Idempotency-Key"] != first["Idempotency-Key"]
    assert (await watched.settle()).findings == []


async def test_a_stop_ends_what_is_retried(watched: Watched, receiver: Receiver) -> None:
    """A job that fails for ever makes a bounded number of calls, and none after it was paused."""
    receiver.manners["stubborn"] = fail
    await watched.every("stubborn", 3600, retry={**RETRY, "max_attempts": 100, "factor": 1})
    await receiver.wait_for("stubborn", 3)
    paused = await ask(watched.installation, "POST", "/jobs/stubborn/pause", json={"reason": "enough"})
    assert paused.status_code == 200
    calls = len(receiver.at("stubborn"))
    await asyncio.sleep(2.5 * BACKOFF)
    assert len(receiver.at("stubborn")) == calls
    [row] = await rows_of(watched.installation, "stubborn")
    assert (row.outcome, row.reason) == ("dead_lettered", "paused")
