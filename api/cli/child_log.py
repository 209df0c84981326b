"""The output of one child: all of it into a bounded file, warnings and errors to the terminal as well."""

from __future__ import annotations

import logging
import re
import sys
import time
from asyncio import StreamReader
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

_FILE_BYTES = 10 * 1024 * 1024
_LINE_BYTES = 64 * 1024
_SHOWN_CHARACTERS = 500
_SHOWN_LINES = 20
_SHOWN_SECONDS = 10.0
_LEVEL = re.compile(r"\b(?:level=)?(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b")
_ALARMING = {"ERROR", "CRITICAL", "FATAL"}


class ChildLog:
    """Reads until the child closes its output, so that a full pipe never stops it.

    The file turns over at 10 MiB and one older file is kept. At most 20 lines in 10 s are shown,
    and none that the pattern ``quiet`` finds.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        show_warnings: bool = True,
        quiet: str | None = None,
        terminal: TextIO | None = None,
    ) -> None:
        self._name = name
        self._path = path
        self._terminal = terminal if terminal is not None else sys.stderr
        self._shown_levels = _ALARMING | ({"WARN", "WARNING"} if show_warnings else set())
        self._show_unmarked = show_warnings
        self._quiet = re.compile(quiet) if quiet else None
        self._muted = False
        self._file = _File(path, self._cannot_write)
        self._shown: deque[float] = deque()
        self._hidden = 0
        self._recent: deque[str] = deque(maxlen=8)

    def tail(self) -> list[str]:
        """The last lines, for the message about a child that will not start."""
        return list(self._recent)

    async def follow(self, output: StreamReader) -> None:
        rest = b""
        while chunk := await output.read(_LINE_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.take(line.decode(errors="replace").rstrip("\r"))
            if len(rest) > _LINE_BYTES:
                self.take(rest.decode(errors="replace"))
                rest = b""
        if rest:
            self.take(rest.decode(errors="replace"))

    def mute(self) -> None:
        """Shows nothing more; the file still gets all of it."""
        self._muted = True

    def take(self, line: str) -> None:
        if not line.strip():
            return
        self._recent.append(_shortened(line))
        self._file.emit(logging.makeLogRecord({"msg": line, "args": None}))
        level = _LEVEL.search(line[:120])
        # What carries no level is no log line: a traceback of a process that could not even set up its log.
        if (level is None and self._show_unmarked) or (level is not None and level[1] in self._shown_levels):
            self._show(line)

    def close(self) -> None:
        with suppress(OSError):  # what could not be written still cannot
            self._file.close()

    def _cannot_write(self, error: OSError) -> None:
        if not self._muted:
            self._print(f"{self._path} cannot be written: {error.strerror or error}")

    def _show(self, line: str) -> None:
        if self._muted or (self._quiet is not None and self._quiet.search(line)):
            return
        now = time.monotonic()
        while self._shown and self._shown[0] < now - _SHOWN_SECONDS:
            self._shown.popleft()
        if len(self._shown) >= _SHOWN_LINES:
            self._hidden += 1
            return
        if self._hidden:
            self._print(f"{self._hidden} more lines in {self._path}")
            self._hidden = 0
        self._shown.append(now)
        self._print(_shortened(line))

    def _print(self, line: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads the terminal any more
            print(f"{self._name} | {line}", file=self._terminal, flush=True)


class _File(RotatingFileHandler):
    """Tells of an error once, until a line was written again; one must not stop who follows a child."""

    def __init__(self, path: Path, tell: Callable[[OSError], None]) -> None:
        super().__init__(path, maxBytes=_FILE_BYTES, backupCount=1, errors="replace")
        self._tell = tell
        self._broken = False
        self._failed = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = False
        super().emit(record)
        self._broken = self._failed

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failed = True
        if not self._broken:
            self._tell(error)


def _shortened(line: str) -> str:
    """The ends of a long line: what it is, and where a traceback in one line names its error."""
    if len(line) <= _SHOWN_CHARACTERS:
        return line
    return f"{line[: _SHOWN_CHARACTERS // 2]} … {line[-_SHOWN_CHARACTERS // 2 :]}"
