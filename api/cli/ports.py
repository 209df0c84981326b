"""The ports of a new installation: those asked for must be free, 0 takes any free one."""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack

from infra.temporal.errors import SetupError

# Below the range from which systems draw the ports of outgoing connections, so that none of those can take
# the port between this choice and the server that binds it.
_FIRST, _LAST = 20_000, 32_000
_PATIENCE = 1.0


def choose_ports(host: str, asked: dict[str, int]) -> dict[str, int]:
    """A free port for each option name (``--api-port``); all differ.

    Raises SetupError (``port_taken``) naming the port and its option.
    """
    chosen: dict[str, int] = {}
    with ExitStack() as held:
        for option, port in sorted(asked.items(), key=lambda item: item[1] == 0):  # the fixed ones first
            chosen[option] = _hold(held, host, port, option)
    return {option: chosen[option] for option in asked}


def _hold(held: ExitStack, host: str, port: int, option: str) -> int:
    if port:
        try:
            return _bind_soon(held, host, port)
        except OSError as error:
            raise SetupError(
                f"port {port} ({option}) on {host} cannot be used: {error.strerror}; stop what uses it, or "
                f"name another ({option} 0 takes any free one)",
                code="port_taken",
            ) from error
    for _ in range(200):
        try:
            return _bind(held, host, random.randrange(_FIRST, _LAST))
        except OSError:
            continue
    return _bind(held, host, 0)


def _bind_soon(held: ExitStack, host: str, port: int) -> int:
    """Waits a moment for what holds the port: the children of an installation that was just killed."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return _bind(held, host, port)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _bind(held: ExitStack, host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # As the servers do: a port whose last connections are still closing is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    held.enter_context(listener)
    return int(listener.getsockname()[1])
