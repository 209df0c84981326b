"""The end of a process that used the Temporal SDK."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Flushes and ends the process with exactly this status.

    The interpreter's own finalization is left out: with the SDK's threads alive it has been seen to abort
    (status 134) after a clean run, and a supervisor would take that for a crash.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
