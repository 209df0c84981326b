"""The worker process: signals, and an exit status that tells the truth."""

from __future__ import annotations

import asyncio
import signal
from typing import NoReturn

from api.cli.leave import leave
from infra.settings import Settings


def work(settings: Settings) -> NoReturn:
    """Runs a worker until SIGTERM or SIGINT; a second signal ends it at once."""
    from workers.main import run

    async def until_stopped() -> NoReturn:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ask_to_stop(number: signal.Signals) -> None:
            if stop.is_set():
                leave(128 + number)
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask_to_stop, number)
        # Left from inside the loop, whose own closing waits for threads that targets may have blocked.
        leave(await run(settings, stop=stop))

    asyncio.run(until_stopped())
    raise AssertionError("unreachable")
