"""The head of a request: what every delivery tells its target about itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from yarl import URL

from activities.targets.delivery import Delivery
from infra.signing import signature


def traceparent(key: str, execution_id: str, delivery: int) -> str:
    """W3C Trace Context, version 00, sampled. One trace an occurrence, one span a send; stable."""
    trace = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    span = hashlib.blake2b(f"{execution_id}#{delivery}".encode(), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"


class SignedHead:
    """Everything but the signature is fixed beforehand; that one says when the request was written."""

    def __init__(
        self, lines: Sequence[str], *, message_id: str, body: bytes, signing_secrets: Sequence[str]
    ) -> None:
        """``lines``: the request line and all headers but the signature's. Raises ValueError for a line
        that is two."""
        self._message_id = message_id
        self._body = body
        self._signing_secrets = signing_secrets
        head = "\r\n".join([*lines, f"webhook-id: {message_id}"])
        if head.count("\n") != len(lines) or head.count("\r") != len(lines):
            raise ValueError("a header value has a line break")
        self._fixed = head.encode()

    def message(self, at: datetime) -> bytes:
        """The whole request, signed as of ``at``."""
        signed = signature(self._signing_secrets, message_id=self._message_id, at=at, body=self._body)
        stamp = f"\r\nwebhook-timestamp: {int(at.timestamp())}\r\nwebhook-signature: {signed}\r\n\r\n"
        return self._fixed + stamp.encode() + self._body


class NoticeHead(SignedHead):
    """The head of a message that is no delivery of a job: a POST of JSON."""

    def __init__(
        self, url: URL, body: bytes, *, message_id: str, user_agent: str, signing_secrets: Sequence[str]
    ) -> None:
        lines = [
            f"POST {url.raw_path_qs} HTTP/1.1",
            f"Host: {url.host_port_subcomponent}",
            f"User-Agent: {user_agent}",
            "Accept: */*",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        super().__init__(lines, message_id=message_id, body=body, signing_secrets=signing_secrets)


class Head(SignedHead):
    """The head of a delivery."""

    def __init__(
        self,
        delivery: Delivery,
        url: URL,
        body: bytes | None,
        *,
        content_type: str | None,
        user_agent: str,
        signing_secrets: Sequence[str],
    ) -> None:
        own = delivery.target.headers
        given = {name.lower() for name in own}
        lines = [
            f"{delivery.target.method} {url.raw_path_qs} HTTP/1.1",
            f"Host: {url.host_port_subcomponent}",
        ]
        if "user-agent" not in given:
            lines.append(f"User-Agent: {user_agent}")
        if "accept" not in given:
            lines.append("Accept: */*")
        if content_type is not None:
            lines.append(f"Content-Type: {content_type}")
        # RFC 9110, section 8.6: a request without a body says so where its method expects one.
        if body is not None or delivery.target.method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(body or b'')}")
        lines += [f"{name}: {value}" for name, value in own.items()]
        lines += [
            f"Idempotency-Key: {delivery.key}",
            f"Carillon-Job: {delivery.job}",
            f"Carillon-Scheduled-Time: {delivery.scheduled_time}",
            f"Carillon-Trigger: {delivery.trigger}",
            f"Carillon-Attempt: {delivery.attempt}",
            f"Carillon-Delivery: {delivery.delivery}",
            f"Carillon-Execution-Id: {delivery.execution_id}",
        ]
        if delivery.callback is not None:
            lines.append(f"Carillon-Callback: {delivery.callback}")
        lines.append(f"traceparent: {traceparent(delivery.key, delivery.execution_id, delivery.delivery)}")
        super().__init__(lines, message_id=delivery.key, body=body or b"", signing_secrets=signing_secrets)
