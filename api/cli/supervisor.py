"""Child processes: started, started again when they die, and stopped in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from api.cli.child_log import ChildLog

_TETHER = Path(__file__).with_name("tether.py")


@dataclass(frozen=True)
class ChildSpec:
    name: str
    command: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of the child."""
    directory: Path | None = None
    stop_within: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    show_warnings: bool = True
    """False: only errors are shown, and nothing while it stops."""
    quiet: str | None = None
    """A pattern of lines that are never shown."""


@dataclass(frozen=True)
class RestartRule:
    """Waits ``first``, doubled up to ``longest``, between deaths that follow one another (seconds)."""

    first: float = 0.2
    longest: float = 5.0
    settled_after: float = 10.0
    """A child that lived as long starts the count anew."""
    deaths_at_start: int = 3
    """Deaths in a row of a child that was never up, after which it is given up."""
    deaths: int = 20
    """The same for one that was up before."""

    def wait(self, deaths: int) -> float:
        """Seconds to wait after that many deaths in a row, at least one."""
        return float(min(self.longest, self.first * 2 ** min(deaths - 1, 16)))


class ChildGaveUp(Exception):
    """A child died too often in a row; the message has its last words."""


class Child:
    """One child process under a restart rule. All methods belong to the event loop of the main thread:
    the kernel ties a child to the thread that started it."""

    def __init__(self, spec: ChildSpec, rule: RestartRule, on_event: Callable[[str], None]) -> None:
        self.spec = spec
        self.process: asyncio.subprocess.Process | None = None
        self.was_up = False
        """Set by whoever knows that the child once did its work."""
        self.restarts = 0
        self._rule = rule
        self._say = on_event
        self._stopping = asyncio.Event()
        self._log = ChildLog(spec.name, spec.log, show_warnings=spec.show_warnings, quiet=spec.quiet)
        self.task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def start(self) -> asyncio.Task[None]:
        """The task ends when the child was stopped, and fails with ChildGaveUp."""
        self.task = asyncio.create_task(self._run(), name=f"child {self.spec.name}")
        return self.task

    async def _run(self) -> None:
        deaths = 0
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                status = await self._once()
                if self._stopping.is_set():
                    return
                lived = time.monotonic() - began
                deaths = 1 if lived >= self._rule.settled_after else deaths + 1
                limit = self._rule.deaths if self.was_up else self._rule.deaths_at_start
                if deaths >= limit:
                    raise ChildGaveUp(self._last_words(status, deaths))
                wait = self._rule.wait(deaths)
                self._say(f"{self.spec.name} {_ending(status)}; starting it again in {wait:.1f} s")
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), wait)
                self.restarts += 1
        finally:
            self._log.close()

    async def _once(self) -> int:
        arguments = (sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *self.spec.command)
        self.process = process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(self.spec.environment),
            cwd=self.spec.directory,
            process_group=0,
        )
        if self._stopping.is_set():  # asked to stop while it was being started
            self._signal(signal.SIGTERM)
        assert process.stdout is not None
        follow = asyncio.create_task(self._log.follow(process.stdout))
        status = await process.wait()
        # A grandchild may hold the pipe open; it must hold up neither a restart nor the stop.
        await asyncio.wait({follow}, timeout=1)
        if not follow.done():
            follow.cancel()
        return status

    async def stop(self) -> None:
        """SIGTERM, after ``stop_within`` SIGKILL to the whole group; returns when the child is gone."""
        self._stopping.set()
        if not self.spec.show_warnings:
            self._log.mute()
        if self.task is None:
            return
        self._signal(signal.SIGTERM)
        await asyncio.wait({self.task}, timeout=self.spec.stop_within)
        if not self.task.done():
            self._say(f"{self.spec.name} did not stop within {self.spec.stop_within:.0f} s and was killed")
            self.kill()
            await asyncio.wait({self.task})

    def kill(self) -> None:
        self._stopping.set()
        if self.alive and self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive and self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def _last_words(self, status: int, deaths: int) -> str:
        tail = "".join(f"\n  {line}" for line in self._log.tail())
        return f"{self.spec.name} {_ending(status)}, {deaths} times in a row; see {self.spec.log}{tail}"


class Supervisor:
    """The children of one process. They stop turn by turn, the lowest first; those of one turn together."""

    def __init__(self, say: Callable[[str], None], rule: RestartRule | None = None) -> None:
        self._say = say
        self._rule = rule or RestartRule()
        self._turns: dict[int, list[Child]] = {}
        self._failed = asyncio.Event()
        self._cause: BaseException | None = None

    def start(self, *specs: ChildSpec, stop_turn: int) -> list[Child]:
        """Starts children that will be stopped in the given turn."""
        children = [Child(spec, self._rule, self._say) for spec in specs]
        self._turns.setdefault(stop_turn, []).extend(children)
        for child in children:
            child.start().add_done_callback(self._ended)
        return children

    async def failure(self) -> BaseException:
        """Waits until a child is given up and returns why."""
        await self._failed.wait()
        assert self._cause is not None
        return self._cause

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self._cause is None:
            self._cause = error
            self._failed.set()

    async def stop(self) -> None:
        for turn in sorted(self._turns):
            await asyncio.gather(*(child.stop() for child in self._turns[turn]))

    def kill(self) -> None:
        """Ends every child now."""
        for children in self._turns.values():
            for child in children:
                child.kill()


def _ending(status: int) -> str:
    if status < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
