"""A worker whose time is told: hours of holding in no time, and a wall clock that can be set."""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.attempt import Attempts, Places, ReturnRate
from activities.clock import ServerOffset
from activities.fence import Fences, Passed
from activities.targets.delivery import Answer, Delivery
from activities.turnstile import Turnstile
from infra.telemetry import Telemetry
from workflows.contracts.attempt import AttemptInput, AttemptReport, HeartbeatDetails, Occurrence
from workflows.contracts.definition import JobDefinition
from workflows.contracts.names import scheduled_key
from workflows.contracts.records import Record

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LET_RUN = 40
"""Turns of the event loop after which whoever can go on has done so."""

Skew = Callable[[float], float]
"""By how many seconds the wall clock is ahead of the truth after so many seconds."""


class VirtualClock:
    """Time stands still until everybody sleeps. The truth, and the server's time, is ``true_now``."""

    def __init__(self, skew: Skew = lambda _: 0.0, *, wakes_early_by: float = 0.0) -> None:
        self._elapsed = 1000.0
        self._begun = self._elapsed
        self._skew = skew
        self._wakes_early_by = wakes_early_by
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._turns = count()

    def true_now(self) -> datetime:
        return NOON + SECOND * self.passed

    @property
    def passed(self) -> float:
        return self._elapsed - self._begun

    def now(self) -> datetime:
        return self.true_now() + SECOND * self._skew(self.passed)

    def set(self, skew: Skew) -> None:
        """Somebody sets the wall clock."""
        self._skew = skew

    def elapsed(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        # a timer may come early, but never before anything else could happen
        seconds = max(seconds - self._wakes_early_by, 0.001)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._turns), woken))
        await woken

    def stand_still(self, seconds: float) -> None:
        """What SIGSTOP or a closed lid does: time goes on and nobody notices."""
        self._elapsed += seconds

    async def run(self, until: asyncio.Task[Any], within: float = 100_000) -> None:
        """Let time pass until the task is done."""
        while not until.done():
            for _ in range(LET_RUN):
                await asyncio.sleep(0)
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if until.done() or not self._sleepers:
                await asyncio.sleep(0.001)
                continue
            at, _, woken = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, at)
            assert self.passed < within, "it holds for ever"
            woken.set_result(None)


class ScriptedFences(Fences):
    """Fences whose answers are given; afterwards every one passes."""

    def __init__(self, clock: VirtualClock, answers: Sequence[Passed] = ()) -> None:
        super().__init__(clock)
        self._now, self._sleep = clock.true_now, clock.sleep
        self.takes = 0.0
        self._answers = list(answers)
        self.asked: list[tuple[datetime, HeartbeatDetails]] = []
        self.after_beats: list[bool] = []

    async def pass_with(self, details: HeartbeatDetails, *, after_beats: bool = True) -> Passed:
        self.asked.append((self._now(), details))
        self.after_beats.append(after_beats)
        if self.takes:
            await self._sleep(self.takes)
        return self._answers.pop(0) if self._answers else Passed.YES


@dataclass
class Target:
    """Remembers when each request was written, by the truth and by the worker's wall clock."""

    clock: VirtualClock
    frozen: list[float] = field(default_factory=list)
    """Seconds for which the process stands still before each write."""
    takes: float = 0.0
    frozen_before_answer: float = 0.0
    """Seconds for which the process stands still while the answer comes."""
    answer: Answer = field(default_factory=lambda: Answer(outcome="succeeded", status_code=200))
    written: list[tuple[datetime, datetime, Delivery]] = field(default_factory=list)

    async def send(
        self, delivery: Delivery, *, deadline: timedelta, before_write: Callable[[], None]
    ) -> Answer:
        if self.frozen:
            self.clock.stand_still(self.frozen.pop(0))
        before_write()
        self.written.append((self.clock.true_now(), self.clock.now(), delivery))
        if self.takes:
            await self.clock.sleep(self.takes)
        self.clock.stand_still(self.frozen_before_answer)
        return self.answer


@dataclass
class Recorder:
    """Stores at once, or when it is allowed to."""

    records: list[Record] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    allowed: asyncio.Event | None = None

    async def store(self, records: Sequence[Record], wait: timedelta) -> bool:
        self.asked.set()
        if self.allowed is not None:
            await self.allowed.wait()
        self.records.extend(records)
        return True

    def offer(self, records: Sequence[Record]) -> None:
        self.records.extend(records)


class Worker:
    """One attempt in one worker."""

    def __init__(
        self,
        inp: AttemptInput,
        *,
        clock: VirtualClock | None = None,
        fences: Sequence[Passed] = (),
        native_attempt: int = 1,
        left: HeartbeatDetails | None = None,
        given_again: datetime | None = None,
        server_behind: float | None = None,
        **places: Any,
    ) -> None:
        """``places``: what the process has beside the usual. ``left``: what a lost holder left.
        ``given_again``: when the server was ready to give the attempt
        to this holder, after the other's. ``server_behind``: seconds, as was measured before."""
        self.inp = inp
        self.clock = clock or VirtualClock()
        self.fences = ScriptedFences(self.clock, fences)
        self.target = Target(self.clock)
        self.recorder = Recorder()
        self.offset = offset = ServerOffset(self.clock)
        if server_behind is not None:
            offset.measured(SECOND * server_behind)
        self.attempts = Attempts(
            Places(
                sender=self.target,
                turnstile=Turnstile(10),
                returns=ReturnRate(),
                fences=self.fences,
                clock=self.clock,
                offset=offset,
                recorder=self.recorder,
                telemetry=Telemetry(),
                worker="virtual",
                hold_limit=timedelta(seconds=30),
                tzdata="2026a",
                **places,
            )
        )
        self.environment = ActivityEnvironment()
        self.environment.info = dataclasses.replace(
            self.environment.info,
            attempt=native_attempt,
            started_time=self.clock.true_now() - SECOND * (server_behind or 0.0),
            heartbeat_details=[] if left is None else [left.model_dump(mode="json")],
        )
        if given_again is not None:
            self.environment.info = dataclasses.replace(
                self.environment.info, current_attempt_scheduled_time=given_again
            )
        self.beats: list[HeartbeatDetails] = []
        self.environment.on_heartbeat = self.beats.append

    def start(self) -> asyncio.Task[AttemptReport]:
        return asyncio.ensure_future(self.environment.run(self.attempts.attempt, self.inp))

    async def report(self) -> AttemptReport:
        """Run the attempt to its end. A failed one raises as the activity does."""
        task = self.start()
        await self.clock.run(task)
        return task.result()

    async def until(self, seconds: float) -> None:
        """Let time pass up to so many seconds."""
        await self.clock.run(asyncio.ensure_future(self.clock.sleep(seconds)))

    async def ends(self, task: asyncio.Task[AttemptReport]) -> AttemptReport:
        with suppress(asyncio.CancelledError):
            await self.clock.run(task)
        return task.result()


def attempt(due_in: float = 20, *, not_after: float | None = None, **fields: Any) -> AttemptInput:
    """Due so many seconds after noon, by the server's time; ``not_after`` as well."""
    fires_at = NOON + SECOND * due_in
    definition = fields.pop("definition", {})
    return AttemptInput.model_validate(
        {
            "tenant": "acme",
            "ref": "report",
            "job": "report",
            "occurrence": Occurrence(
                key=scheduled_key("acme", "report", fires_at), scheduled_time=fires_at, fires_at=fires_at
            ),
            "attempt": 1,
            "fires_at": fires_at,
            "not_after": None if not_after is None else NOON + SECOND * not_after,
            "definition": JobDefinition.model_validate(
                {
                    "schedule": {"every": 60, "anchor": NOON.isoformat()},
                    "target": {"url": "http://127.0.0.1:9/"},
                    **definition,
                }
            ),
            "revision": 1,
            **fields,
        }
    )


def left(phase: str, native_attempt: int = 1, **fields: object) -> HeartbeatDetails:
    """What the holder before left behind."""
    return HeartbeatDetails.model_validate(
        {"native_attempt": native_attempt, "phase": phase, "deliveries": 0, "reaps": 0, "at": NOON, **fields}
    )
