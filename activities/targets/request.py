"""One request, written once: aiohttp's own way of writing one is replaced here.

aiohttp writes a body from a task of its own, sends idempotent requests a second time when a
connection that it used before breaks, and calls its hooks in coroutines. A run must know the
instant before its first byte may be out, and must never be sent twice unasked.
"""

from __future__ import annotations

import select
from asyncio import BaseTransport, WriteTransport
from collections.abc import Callable, Sequence
from datetime import datetime
from weakref import WeakSet

from aiohttp import ClientError, ClientHandlerType, ClientRequest, ClientResponse
from aiohttp.connector import Connection
from aiohttp.http import StreamWriter

from activities.targets.address import parse_resolved
from activities.targets.answering import Answering
from activities.targets.head import SignedHead


class TransportFailure(Exception):
    """An error of the HTTP library. ``cause`` is no longer an exception that it retries upon."""

    def __init__(self, cause: ClientError | OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Refused(Exception):
    """``before_write`` raised; the shot has its exception, which the library could have changed."""


class ConnectionLost(Exception):
    """A connection was closed by its peer before anything was written to it."""


class _Stale(Exception):
    """A connection from the pool cannot be used again; another one is taken instead."""


class Shot:
    """The one request of one send, and whether it has been written."""

    def __init__(
        self,
        head: SignedHead,
        addresses: Sequence[str],
        *,
        before_write: Callable[[], None],
        now: Callable[[], datetime],
        used: WeakSet[Answering],
    ) -> None:
        self._head = head
        self._addresses = addresses
        self._before_write = before_write
        self._now = now
        self._used = used
        self.written_at: datetime | None = None
        self.refusal: BaseException | None = None
        """What ``before_write`` raised."""

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """As an aiohttp client middleware: hand the request this shot, and let no error be retried."""
        assert isinstance(request, OneShotRequest)
        request.shot = self
        while True:
            try:
                return await handler(request)
            except _Stale:
                continue  # Each turn closes one pooled connection; a new one is never stale.
            except (ClientError, OSError) as error:
                if self.refusal is not None:
                    raise Refused from None
                raise TransportFailure(error) from error

    def check(self, connection: Connection) -> None:
        """Refuse a connection that is not open to an address checked for this very send."""
        protocol, transport = connection.protocol, connection.transport
        assert isinstance(protocol, Answering)
        reused = protocol in self._used
        if protocol.spoilt and not reused:
            raise ConnectionLost("the target spoke before it was asked")
        if (
            protocol.spoilt
            or transport is None
            or transport.is_closing()
            or (reused and _is_readable(transport))
        ):
            raise _Stale if reused else ConnectionLost("the connection was closed before the request")
        if not self._is_checked(transport.get_extra_info("peername")[0]):
            # A pooled one may lead to an address that the name has left, or that is no longer allowed.
            raise _Stale if reused else RuntimeError("connected to an address that was not checked")
        self._used.add(protocol)

    def _is_checked(self, peer: str) -> bool:
        if peer in self._addresses:
            return True
        # The same address may be spelt in two ways: ::ffff:7f00:1 and ::ffff:127.0.0.1.
        return parse_resolved(peer) in [parse_resolved(address) for address in self._addresses]

    def write(self, transport: WriteTransport) -> int:
        """Write the request, whole, in this very step of the event loop. Returns its bytes."""
        if self.written_at is not None:
            raise RuntimeError("a delivery must not be written twice")
        message = self._head.message(self._now())
        try:
            self._before_write()
        except BaseException as refusal:
            self.refusal = refusal
            raise
        self.written_at = self._now()
        transport.write(message)
        return len(message)


class OneShotRequest(ClientRequest):
    """Writes what its shot holds instead of what aiohttp would have composed."""

    shot: Shot

    async def send(self, conn: Connection) -> ClientResponse:
        """Called with a connection in hand: names, TCP, TLS and the pool are behind us.

        There is no await in here, so a cancellation is either seen before the write or after it.
        """
        self.shot.check(conn)
        protocol, transport = conn.protocol, conn.transport
        assert isinstance(protocol, Answering)
        assert transport is not None
        protocol.expect()
        writer = StreamWriter(protocol, self.loop)
        writer.output_size = self.shot.write(transport)
        protocol.start_timeout()
        return self.response_class(
            self.method,
            self.original_url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=[],
            loop=self.loop,
            session=self.session,
            stream_writer=writer,
        )


def _is_readable(transport: BaseTransport) -> bool:
    """Whether an idle connection has something to read: its end, as a rule, and never an answer.

    The event loop may not have seen it yet. Asking the kernel leaves only the round trip itself in
    which a server that closes idle connections can reset a request.
    """
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return True
    poller = select.poll()
    poller.register(socket.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poller.poll(0))
