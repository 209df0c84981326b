"""Names to addresses, checked; and the only addresses that a connection may then go to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import lru_cache

from aiohttp.abc import AbstractResolver, ResolveResult

from activities.targets.address import Network, is_allowed, parse_resolved
from activities.targets.url import TargetUrl

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Every address of a name, as text. Raises OSError where there is none."""

LOOKUP_THREADS = 32
"""Names that hang in the system's resolver block a thread each, for as long as that waits."""
LOOKUP_TIMEOUT_S = 10.0

PINNED: ContextVar[tuple[str, ...]] = ContextVar("pinned_addresses")
"""The addresses checked for the send that runs in this context."""


class Blocked(Exception):
    """A target has an address that is not allowed."""


class NoAddress(Exception):
    """A name has no address, or none could be found out now."""


class SystemLookup:
    """The operating system's resolver, in threads of its own, so that slow names delay names only."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="lookup")

    async def __call__(self, host: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _getaddrinfo, host)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _getaddrinfo(host: str) -> Sequence[str]:
    # No AI_ADDRCONFIG: a forbidden IPv6 address counts on a host without IPv6 too.
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class CheckedResolver:
    """Looks a target up for one send. There is no cache: only lookups still in flight are shared."""

    def __init__(self, lookup: Lookup, allow_networks: Sequence[Network]) -> None:
        self._lookup = lookup
        self._is_allowed = lru_cache(maxsize=10_000)(
            lambda text: is_allowed(parse_resolved(text), allow_networks)
        )
        self._in_flight: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, target: TargetUrl) -> tuple[str, ...]:
        """Every address of a target, all of them allowed. Raises Blocked or NoAddress."""
        found = [str(target.literal)] if target.literal is not None else await self._find(target.host)
        for text in found:
            if not self._is_allowed(text):
                shown = text if target.literal is not None else f"{target.host} ({text})"
                raise Blocked(f"address not allowed: {shown} is not public")
        return tuple(found)

    def close(self) -> None:
        """Give up what is still being looked up."""
        for lookup in self._in_flight.values():
            lookup.cancel()

    async def _find(self, host: str) -> Sequence[str]:
        lookup = self._in_flight.get(host)
        if lookup is None:
            lookup = asyncio.ensure_future(self._lookup(host))
            self._in_flight[host] = lookup
            lookup.add_done_callback(lambda done: self._landed(host, done))
        try:
            # One send that is cancelled must not take the others' lookup with it.
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                found = await asyncio.shield(lookup)
        except TimeoutError:
            raise NoAddress(f"{host} could not be resolved within {LOOKUP_TIMEOUT_S:g} s") from None
        except (OSError, UnicodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise NoAddress(f"{host} could not be resolved: {reason}") from None
        if not found:
            raise NoAddress(f"{host} could not be resolved: it has no address")
        return found

    def _landed(self, host: str, lookup: asyncio.Task[Sequence[str]]) -> None:
        del self._in_flight[host]
        if not lookup.cancelled():
            lookup.exception()  # Every send that waited for it may be gone.


class PinnedResolver(AbstractResolver):
    """Gives aiohttp the addresses that were checked for this very send, and never looks anything up."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in PINNED.get()
        ]

    async def close(self) -> None:
        pass
