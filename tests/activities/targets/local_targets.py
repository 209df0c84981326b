"""Targets that behave as told, on real sockets, and a sender that may reach them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_network
from typing import Any, Protocol

import pytest

from activities.targets.delivery import Answer, Delivery
from activities.targets.http import HttpSender
from workflows.contracts.definition import HttpTarget

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
SIGNING_SECRET = "an installation's secret of 32 bytes or more"


@dataclass
class Request:
    """One request as it came off the wire."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        assert value is not None
        return value

    def get(self, name: str) -> str | None:
        """The value of a header that must not be there twice."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) <= 1
        return values[0] if values else None

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


Script = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


async def answer_ok(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def answering(head: str, body: bytes = b"") -> Script:
    """A script that sends this status line with headers, and this body with its length."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    return script


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@dataclass
class Target:
    """A server that counts what reaches it and answers by its script."""

    script: Script
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    received: int = 0
    """Bytes, of whole requests or not."""
    names: list[str | None] = field(default_factory=list)
    """Server names asked for (SNI)."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await self._read(reader):
                self.requests.append(request)
                await self.script(request, writer)
                await writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = await reader.readline()
            if not line:
                return None
            head += line
            self.received += len(line)
        first, *rest = head.decode().removesuffix("\r\n\r\n").split("\r\n")
        headers = [(name, value) for name, _, value in (one.partition(": ") for one in rest)]
        length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        body = await reader.readexactly(length)
        self.received += length
        return Request(first, headers, body)


class StartTarget(Protocol):
    async def __call__(
        self,
        script: Script = ...,
        *,
        host: str = ...,
        port: int = ...,
        tls: ssl.SSLContext | None = ...,
    ) -> Target: ...


@pytest.fixture
async def start_target() -> AsyncIterator[StartTarget]:
    """Starts targets, and ends them with all their connections."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            script: Script = answer_ok,
            *,
            host: str = "127.0.0.1",
            port: int = 0,
            tls: ssl.SSLContext | None = None,
        ) -> Target:
            target = Target(script)
            if tls is not None:
                tls.sni_callback = lambda _, name, __: target.names.append(name)
            return await stack.enter_async_context(_running(target, host, port, tls))

        yield start


@contextlib.asynccontextmanager
async def _running(target: Target, host: str, port: int, tls: ssl.SSLContext | None) -> AsyncIterator[Target]:
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.add(writer)
        try:
            await target.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # The end of the test.
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, host, port, backlog=2048, ssl=tls)
    target.port = server.sockets[0].getsockname()[1]
    try:
        yield target
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports tell their protocols of the end in the next turn of the loop.
        await asyncio.sleep(0)


class Names:
    """A name server: name to addresses, changeable in the test, counting questions."""

    def __init__(self, **names: Sequence[str] | OSError) -> None:
        self.names = {name.replace("_", "."): found for name, found in names.items()}
        self.asked = 0

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked += 1
        found = self.names[host]
        if isinstance(found, OSError):
            raise found
        return found


@lru_cache(maxsize=1)
def system_roots() -> ssl.SSLContext:
    """What a sender makes by itself; loading the roots takes longer than most tests."""
    return ssl.create_default_context()


class MakeSender(Protocol):
    def __call__(self, **options: Any) -> HttpSender: ...


@pytest.fixture
async def make_sender() -> AsyncIterator[MakeSender]:
    """Makes senders that may reach loopback, and closes them."""
    async with contextlib.AsyncExitStack() as stack:

        def make(**options: Any) -> HttpSender:
            settings: dict[str, Any] = {
                "allow_networks": LOOPBACK,
                "signing_secret": SIGNING_SECRET,
                "user_agent": "Carillon/test",
                "now": lambda: datetime.now(UTC),
                "ssl_context": system_roots(),
            }
            sender = HttpSender(**{**settings, **options})
            stack.push_async_callback(sender.close)
            return sender

        yield make


@pytest.fixture
async def sender(make_sender: MakeSender) -> HttpSender:
    return make_sender()


def delivery(url: str, *, body: Any = None, number: int = 1, attempt: int = 1, **target: Any) -> Delivery:
    key = "acme/daily:2026-12-01T09:00:00Z"
    return Delivery(
        tenant="acme",
        job="daily",
        key=key,
        execution_id=f"{key}:{attempt}",
        attempt=attempt,
        delivery=number,
        scheduled_time="2026-12-01T09:00:00Z",
        trigger="schedule",
        target=HttpTarget(url=url, **target),
        body=body,
    )


class Fired:
    """A ``before_write`` that counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


async def send(
    sender: HttpSender, to: Delivery, *, deadline_s: float = 30, fired: Callable[[], None] | None = None
) -> Answer:
    return await sender.send(to, deadline=timedelta(seconds=deadline_s), before_write=fired or Fired())
