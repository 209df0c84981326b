"""An HTTP receiver that logs when each request began and how it ended, and misbehaves where it is told to."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from tests.faults.accounts import Visit
from tests.faults.alerts import Message

OK = 200


class Caller:
    """One request, for whoever decides what becomes of it."""

    def __init__(self, receiver: Receiver, request: web.Request, visit: Visit, number: int) -> None:
        self.request = request
        self.visit = visit
        self.accepted = False
        self._receiver = receiver
        self.number = number
        """How many came to this job before it."""

    def answer(self, status: int = OK, **headers: str) -> web.Response:
        """To be returned; the visit ends here, before the client can know."""
        self._ended(status)
        return web.Response(
            status=status, text="ok", headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    async def answer_now(self, status: int = OK) -> web.Response:
        """The whole answer is on its way when this returns."""
        response = self.answer(status)
        await response.prepare(self.request)
        await response.write_eof()
        return response

    def reset(self) -> web.Response:
        """The request was processed, and the connection goes without an answer."""
        self._ended(None)
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response()

    async def drip(self, interval: float = 0.2) -> web.StreamResponse:
        """A success whose body never ends."""
        response = web.StreamResponse(headers={"content-length": "1000000"})
        await response.prepare(self.request)
        while True:
            await response.write(b".")
            await asyncio.sleep(interval)

    async def hang(self) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    def accept(self, work: Callable[[Callback], Awaitable[None]]) -> web.Response:
        """202, and ``work`` goes on afterwards, as a target of a callback job does it."""
        self.accepted = True
        self._receiver.keep(
            work(Callback(self.request.headers["carillon-callback"], self.visit, self._receiver))
        )
        return web.Response(status=202)

    def _ended(self, status: int | None) -> None:
        if self.visit.end is None:
            self.visit.end, self.visit.status = time.time(), status


class Callback:
    """What a target that has answered 202 says afterwards."""

    def __init__(self, url: str, visit: Visit, receiver: Receiver) -> None:
        self._url, self._visit, self._receiver = url, visit, receiver

    async def heartbeat(self) -> int:
        sent = time.time()
        status = await self._say("heartbeat")
        if status == 204:
            self._visit.beat = sent
        return status

    async def complete(self) -> int:
        """The visit ends when it is said first; it succeeded if it was ever taken."""
        status = await self._report("complete")
        if status == 204:
            self._visit.status = OK
        return status

    async def fail(self) -> int:
        return await self._report("fail")

    async def _report(self, what: str) -> int:
        self._visit.end = time.time()
        status = await self._say(what)
        self._visit.report = what if status == 204 else "refused"
        return status

    def fall_silent(self) -> None:
        self._visit.end = time.time()

    async def _say(self, what: str) -> int:
        """Again until somebody answers who knows."""
        async with asyncio.timeout(120):
            while True:
                url = self._receiver.door(self._url)
                try:
                    async with self._receiver.client.post(f"{url}/{what}", json={}) as answer:
                        if answer.status not in (429, 503):
                            return answer.status
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.2)


Manner = Callable[[Caller], Awaitable[web.StreamResponse]]


Alerted = Callable[[], Awaitable[int | None]]
"""What becomes of a message: the status it is answered with; None: the connection goes instead."""


async def take() -> int | None:
    return OK


async def answer_ok(caller: Caller) -> web.StreamResponse:
    return caller.answer()


@dataclass
class Receiver:
    """Jobs deliver to ``url(job)``."""

    visits: list[Visit] = field(default_factory=list)
    manners: dict[str, Manner] = field(default_factory=dict)
    """By job; :func:`answer_ok` where there is none."""
    messages: list[Message] = field(default_factory=list)
    alerted: Alerted = take
    port: int = 0
    doors: list[str] = field(default_factory=list)
    """Addresses of API processes that callbacks go to by chance; none: as the delivery says."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    _runner: web.AppRunner | None = None
    _moved: asyncio.Condition = field(default_factory=asyncio.Condition)
    _client: aiohttp.ClientSession | None = None
    _work: set[asyncio.Future[None]] = field(default_factory=set)

    @property
    def client(self) -> aiohttp.ClientSession:
        assert self._client is not None
        return self._client

    def keep(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def start(self) -> Self:
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        app = web.Application()
        app.router.add_route("*", "/{job}", self._receive)
        app.router.add_post("/alerts/all", self._alert)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True, keepalive_timeout=30
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        for task in self._work:
            task.cancel()
        if self._client is not None:
            await self._client.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def target(self, job: str, version: int = 0) -> dict[str, str]:
        return {"type": "http", "url": f"http://127.0.0.1:{self.port}/{job}?version={version}"}

    def door(self, url: str) -> str:
        """The same at any API process."""
        if not self.doors:
            return url
        return self.chance.choice(self.doors) + urlsplit(url).path

    @property
    def alert_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/alerts/all"

    def at(self, job: str) -> list[Visit]:
        return [visit for visit in self.visits if visit.job == job]

    async def wait_for(self, job: str, count: int = 1, within: float = 60) -> list[Visit]:
        """The visits of ``job`` once there are ``count`` of them."""
        return await self.until(lambda: len(self.at(job)) >= count and self.at(job), within)

    async def until(self, enough: Callable[[], list[Visit] | bool], within: float = 60) -> list[Visit]:
        """What ``enough`` gives, as soon as it gives anything; asked whenever a visit begins or ends."""
        async with asyncio.timeout(within), self._moved:
            while not (found := enough()):
                await self._moved.wait()
        return found if isinstance(found, list) else []

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        start, job = time.time(), request.match_info["job"]
        await request.read()
        headers = request.headers
        visit = Visit(
            job=job,
            key=headers["idempotency-key"],
            attempt=int(headers["carillon-attempt"]),
            delivery=int(headers["carillon-delivery"]),
            start=start,
            execution_id=headers["carillon-execution-id"],
            version=int(request.query.get("version", 0)),
        )
        caller = Caller(self, request, visit, len(self.at(job)))
        self.visits.append(visit)
        await self._tell()
        try:
            return await self.manners.get(job, answer_ok)(caller)
        finally:
            if visit.end is None and not caller.accepted:  # the client has gone
                visit.end = time.time()
            await asyncio.shield(asyncio.ensure_future(self._tell()))

    async def _alert(self, request: web.Request) -> web.StreamResponse:
        start, body = time.time(), json.loads(await request.read())
        message = Message(request.headers["webhook-id"], body, start)
        self.messages.append(message)
        status = await self.alerted()
        if status is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        message.status = status
        return web.Response(status=status)

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()
