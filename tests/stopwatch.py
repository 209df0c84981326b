"""How long something took, for tests that promise an upper bound on a machine that others share."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

_TICK_S = 0.02
_MOST_S = 0.1


class Stopwatch:
    """Seconds for which this process ran: one that stood still, as a machine does whose host is busy, counts
    as a tenth of a second at most. The bound a test promises may so be one that tells right from wrong."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._ended = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._ticking.join()

    @property
    def seconds(self) -> float:
        """Final behind the block, and until then what has passed so far."""
        return self._seconds

    def _tick(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            self._seconds += min(now - before, _MOST_S)
            before = now
        self._seconds += min(time.monotonic() - before, _MOST_S)
