"""Logs of a process: one line an event."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

from infra.temporal.errors import SetupError


class _OneLine(logging.Formatter):
    """``2026-12-01T09:00:00.123Z WARNING carillon.worker message``; line breaks are written as ``\\n``."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\r", "\\r").replace("\n", "\\n")


def configure_logging(level: str, *, stream: TextIO | None = None) -> None:
    """Sends the log of this process to ``stream`` (standard error). Raises SetupError for no such level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SetupError(
            f"CARILLON_LOG_LEVEL is {level!r}; take DEBUG, INFO, WARNING or ERROR", code="log_level_unknown"
        )
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_OneLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    logging.captureWarnings(True)
