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


class Head:
    """Everything but the signature is fixed beforehand; that one says when the request was written."""

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
        self._key = delivery.key
        self._body = body or b""
        self._signing_secrets = signing_secrets
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
            lines.append(f"Content-Length: {len(self._body)}")
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
        lines += [
            f"traceparent: {traceparent(delivery.key, delivery.execution_id, delivery.delivery)}",
            f"webhook-id: {delivery.key}",
        ]
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError("a header value has a line break")
        self._fixed = head.encode()

    def message(self, at: datetime) -> bytes:
        """The whole request, signed as of ``at``."""
        signed = signature(self._signing_secrets, message_id=self._key, at=at, body=self._body)
        stamp = f"\r\nwebhook-timestamp: {int(at.timestamp())}\r\nwebhook-signature: {signed}\r\n\r\n"
        return self._fixed + stamp.encode() + self._body
