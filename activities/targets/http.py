"""Delivery over HTTP (docs/delivery.md): one request, and what came of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any
from weakref import WeakSet

from aiohttp import (
    ClientConnectorError,
    ClientConnectorSSLError,
    ClientError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
)

from activities.targets.address import Network
from activities.targets.answer import Excerpt
from activities.targets.answering import HEAD_BYTES, Answering, Connector
from activities.targets.body import encode_body
from activities.targets.delivery import Answer, Delivery, ErrorKind
from activities.targets.head import Head, NoticeHead, SignedHead
from activities.targets.request import ConnectionLost, OneShotRequest, Refused, Shot, TransportFailure
from activities.targets.resolver import (
    PINNED,
    Blocked,
    CheckedResolver,
    Lookup,
    NoAddress,
    PinnedResolver,
    SystemLookup,
)
from activities.targets.retry_after import first_retry_after
from activities.targets.url import TargetUrl, UrlError, parse_url
from activities.targets.verdict import judge
from infra.signing import tenant_signing_secret
from workflows.domain.errors import RuleError
from workflows.domain.headers import check_headers

CONNECT_TIMEOUT_S = 10.0
"""For TCP and TLS together, an address; the deadline bounds all of them."""
IDLE_S = 1.0
"""How long an idle connection stays. Long enough for a burst to one host; servers close idle
connections after two seconds or more, and a request must not meet that."""
_BUFFER_BYTES = 16 * 1024
_HEADER_BYTES = 64 * 1024
_HEADERS = HEAD_BYTES // 32
"""So many at least fit; the bytes are the bound."""


class HttpSender:
    """Sends deliveries. One a worker process, made on its event loop and closed at the end.

    It holds no place and no queue: bound the sends in flight with a turnstile.
    """

    def __init__(
        self,
        *,
        allow_networks: Sequence[Network],
        signing_secret: str,
        user_agent: str,
        now: Callable[[], datetime],
        lookup: Lookup | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """``signing_secret`` is the installation's; names and trusted roots are the system's unless given."""
        self._signing_secret = signing_secret
        self._user_agent = user_agent
        self._now = now
        self._system_lookup = SystemLookup()
        self._resolver = CheckedResolver(lookup or self._system_lookup, allow_networks)
        self._used: WeakSet[Answering] = WeakSet()
        self._session = ClientSession(
            connector=Connector(
                resolver=PinnedResolver(),
                use_dns_cache=False,
                limit=0,
                keepalive_timeout=IDLE_S,
                ssl=ssl_context or ssl.create_default_context(),
            ),
            request_class=OneShotRequest,
            cookie_jar=DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            read_bufsize=_BUFFER_BYTES,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            max_headers=_HEADERS,
        )

    async def close(self) -> None:
        """Close all connections, those in use too."""
        await self._session.close()
        self._resolver.close()
        self._system_lookup.close()

    async def send(
        self, delivery: Delivery, *, deadline: timedelta, before_write: Callable[[], None]
    ) -> Answer:
        """Send one delivery, once, and read its answer.

        ``deadline`` runs from this call and bounds everything: name, connection, request, answer.
        ``before_write`` is called at most once, without a suspension between it and the write, when
        the connection stands; if it raises, nothing is written and the exception comes out of here.
        A cancellation that arrives before it leaves nothing written either. Only these two raise:
        every other end is an Answer.
        """
        progress = _Progress()
        return await _within(deadline, progress, self._send(delivery, before_write, progress))

    async def notify(
        self, url: str, body: Any, *, message_id: str, tenant: str, deadline: timedelta
    ) -> Answer:
        """POST ``body`` as JSON, once, signed as the tenant's deliveries are; any 2xx is success.

        The rules for addresses, redirects and answers are those of deliveries.
        """
        progress = _Progress()
        return await _within(deadline, progress, self._notify(url, body, message_id, tenant, progress))

    async def _notify(
        self, text: str, body: Any, message_id: str, tenant: str, progress: _Progress
    ) -> Answer:
        try:
            url = parse_url(text)
        except UrlError as error:
            return progress.end("blocked" if error.blocked else "url", str(error))
        encoded, _ = encode_body(body, {})
        head = NoticeHead(
            url.url,
            encoded or b"",
            message_id=message_id,
            user_agent=self._user_agent,
            signing_secrets=(tenant_signing_secret(self._signing_secret, tenant),),
        )
        return await self._exchange(
            url, head, progress, method="POST", success=("2xx",), before_write=lambda: None
        )

    async def _send(
        self, delivery: Delivery, before_write: Callable[[], None], progress: _Progress
    ) -> Answer:
        target = delivery.target
        try:
            url = parse_url(target.url)
            check_headers(target.headers)
            body, content_type = encode_body(delivery.body, target.headers)
        except UrlError as error:
            return progress.end("blocked" if error.blocked else "url", str(error))
        except RuleError as error:
            return progress.end("headers", str(error))
        except ValueError as error:
            return progress.end("body", str(error))
        head = Head(
            delivery,
            url.url,
            body,
            content_type=content_type,
            user_agent=self._user_agent,
            signing_secrets=delivery.signing_secrets
            or (tenant_signing_secret(self._signing_secret, delivery.tenant),),
        )
        return await self._exchange(
            url, head, progress, method=target.method, success=target.success, before_write=before_write
        )

    async def _exchange(
        self,
        url: TargetUrl,
        head: SignedHead,
        progress: _Progress,
        *,
        method: str,
        success: Sequence[str],
        before_write: Callable[[], None],
    ) -> Answer:
        try:
            addresses = await self._resolver.addresses(url)
        except Blocked as error:
            return progress.end("blocked", str(error))
        except NoAddress as error:
            return progress.end("dns", str(error), retryable=True)
        shot = Shot(head, addresses, before_write=before_write, now=self._now, used=self._used)
        progress.shot = shot
        pinned = PINNED.set(addresses)
        try:
            async with self._session.request(
                method, url.url, allow_redirects=False, middlewares=(shot,)
            ) as response:
                return await self._read(response, success, progress)
        except TransportFailure as error:
            kind, text = _explain(error.cause, written=shot.written_at is not None)
            return progress.end(kind, f"{url.host}:{url.port}: {text}", retryable=True)
        except Refused:
            assert shot.refusal is not None
            raise shot.refusal from None
        except ConnectionLost as error:
            return progress.end("connect", f"{url.host}:{url.port}: {error}", retryable=True)
        finally:
            PINNED.reset(pinned)

    async def _read(self, response: ClientResponse, success: Sequence[str], progress: _Progress) -> Answer:
        progress.status = response.status
        excerpt = progress.excerpt = Excerpt(response)
        # After 101 the connection speaks another protocol, and no body will ever end.
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS or not await excerpt.read():
            response.close()
        verdict = judge(response.status, success)
        if verdict.kind is None:
            return progress.end(None, None)
        text = f"answered {_named(response.status)}"
        if verdict.kind == "redirect":
            text += ": redirects are not followed, use the final URL"
        wait = first_retry_after(response.headers.getall("Retry-After", ()), now=self._now())
        return progress.end(
            verdict.kind, text, retryable=verdict.retryable, retry_after_s=wait if verdict.retryable else None
        )


async def _within(deadline: timedelta, progress: _Progress, exchange: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer of ``exchange``, or what there is of it at the deadline."""
    late = f"no complete answer within {deadline.total_seconds():g} s"
    if deadline <= timedelta(0):
        exchange.close()
        return progress.end("timeout", late, retryable=True, timed_out=True)
    try:
        async with asyncio.timeout(deadline.total_seconds()) as limit:
            return await exchange
    except TimeoutError:
        if progress.refusal is not None or not limit.expired():
            raise
        return progress.end("timeout", late, retryable=True, timed_out=True)


class _Progress:
    """How far a send has come, for the answer that a deadline cuts short too."""

    def __init__(self) -> None:
        self.shot: Shot | None = None
        self.status: int | None = None
        self.excerpt: Excerpt | None = None

    @property
    def refusal(self) -> BaseException | None:
        return self.shot.refusal if self.shot else None

    def end(
        self,
        kind: ErrorKind | None,
        error: str | None,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
        timed_out: bool = False,
    ) -> Answer:
        return Answer(
            outcome="succeeded" if kind is None else "timed_out" if timed_out else "failed",
            status_code=self.status,
            error=error,
            error_kind=kind,
            answer=self.excerpt.text if self.excerpt else None,
            retryable=retryable,
            retry_after_s=retry_after_s,
            written_at=self.shot.written_at if self.shot else None,
        )


def _explain(error: ClientError | OSError, *, written: bool) -> tuple[ErrorKind, str]:
    """Kind and text of an error of the HTTP library."""
    if isinstance(error, ConnectionTimeoutError):
        return "connect", f"no connection within {CONNECT_TIMEOUT_S:g} s"
    if tls := _tls_cause(error):
        reason = getattr(tls, "verify_message", None) or tls.reason or str(tls)
        return "tls", f"TLS failed: {reason}"
    if isinstance(error, ClientSSLError | ClientConnectorSSLError):
        return "tls", "TLS failed"
    if isinstance(error, ClientConnectorError):
        return "connect", f"no connection: {error.strerror or error.os_error}"
    if isinstance(error, ClientResponseError):
        return "protocol", "what came back is not an HTTP answer within bounds"
    if not written:
        return "connect", "the connection broke before the request was written"
    return "reset", "the connection broke before the answer; the request may have been processed"


def _tls_cause(error: BaseException) -> ssl.SSLError | None:
    """A TLS error may hide inside a generic one of the transport."""
    link: BaseException | None = error
    while link is not None:
        # aiohttp's own errors of this kind are SSLErrors too, without what OpenSSL says.
        if isinstance(link, ssl.SSLError) and not isinstance(link, ClientError):
            return link
        link = link.__cause__
    return None


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
