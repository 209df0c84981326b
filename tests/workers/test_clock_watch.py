"""A host's clock: what is told of it, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities.clock import ServerOffset
from tests.activities.virtual import NOON, VirtualClock
from workers.clock_watch import ClockWatch
from workflows.contracts.incident import INSTALLATION, IncidentWord


class Told:
    def __init__(self) -> None:
        self.words: list[IncidentWord] = []
        self.away = False

    async def __call__(self, word: IncidentWord) -> None:
        if self.away:
            raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
        self.words.append(word)


async def test_a_clock_that_runs_ahead_is_told_once_and_so_is_its_end() -> None:
    """In the server's time, and as soon as the server can be told; a first look tells in any case."""
    ahead_by = 0.0
    clock, told = VirtualClock(lambda _: ahead_by), Told()
    offset = ServerOffset(clock)
    watch = ClockWatch(offset, "host-1", tell=told, now=clock.now)
    await watch.look()
    assert told.words == []
    offset.measured(timedelta(seconds=0))
    await watch.look()
    assert [word.open for word in told.words] == [False]
    ahead_by = 90.0
    told.away = True
    await watch.look()
    told.away = False
    await watch.look()
    await watch.look()
    assert [word.open for word in told.words] == [False, True]
    ahead_by = 0.0
    await watch.look()
    await watch.look()
    words = told.words
    assert [word.open for word in words] == [False, True, False]
    assert {(word.tenant, word.kind, word.subject) for word in words} == {
        (INSTALLATION, "clock_ahead", "host-1")
    }
    assert "90.0 s ahead" in words[1].detail
    assert {word.at for word in words} == {NOON}


async def test_a_clock_that_runs_behind_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    behind_by = 0.2
    clock, told = VirtualClock(lambda _: -behind_by), Told()
    offset = ServerOffset(clock)
    offset.measured(timedelta(seconds=-behind_by))
    watch = ClockWatch(offset, "host-1", tell=told, now=clock.now)
    await watch.look()
    assert caplog.messages == []
    behind_by = 40.0
    await watch.look()
    await watch.look()
    [behind] = caplog.messages
    assert "host-1 is 40.0 s behind" in behind
    behind_by = 0.0
    await watch.look()
    await watch.look()
    assert len(caplog.messages) == 2
    assert [word.open for word in told.words] == [False], "it is no incident"
