"""Real ``carillon up`` processes for tests, and what can be seen of them from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CARILLON = Path(sys.executable).parent / "carillon"
PATIENCE = 60.0


def bare_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}


def eventually(condition: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not within {within} s: {what}"
        time.sleep(0.02)


async def until(condition: Callable[[], bool], within: float = PATIENCE) -> None:
    async with asyncio.timeout(within):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Zombies are not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Up:
    """One ``carillon up`` on free ports. ``out`` has its standard output and error."""

    def __init__(self, data_dir: Path, *options: str, out: Path | None = None, **environment: str) -> None:
        self.data_dir = data_dir
        data_dir.mkdir(exist_ok=True)
        self.out = out or data_dir / "out.txt"
        ports = ("--api-port", "--temporal-port", "--ui-port")
        free = [part for option in ports if option not in options for part in (option, "0")]
        with self.out.open("wb") as file:
            self.process = subprocess.Popen(
                [CARILLON, "up", "--data-dir", data_dir, *free, *options],
                stdout=file,
                stderr=file,
                env=bare_environment() | environment,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.out.read_text()

    def ready(self) -> Up:
        """Waits for the last line of the start."""

        def printed() -> bool:
            assert self.process.poll() is None, self.text()
            return self.text().rstrip().endswith("}}}'")

        eventually(printed, "the command that creates a job")
        return self

    def api_answers(self) -> bool:
        from infra.installation import settings_for

        port = settings_for(self.data_dir).api_port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def children(self) -> dict[int, str]:
        """Command lines of the direct children by process id."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((directory / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == self.process.pid:
                    found[int(directory.name)] = (directory / "cmdline").read_text().replace("\0", " ")
        return found

    def child(self, part: str) -> int:
        """The process of the one child whose command line has ``part``."""
        [pid] = [pid for pid, command in self.children().items() if part in command]
        return pid

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def running(data_dir: Path, *options: str, **environment: str) -> Iterator[Up]:
    """Ready at the beginning, gone at the end."""
    up = Up(data_dir, *options, **environment)
    try:
        yield up.ready()
    finally:
        if up.process.poll() is None:
            up.process.terminate()
            try:
                up.process.wait(20)
            except subprocess.TimeoutExpired:
                up.process.kill()
                up.process.wait()
