"""The headers that a job may set: docs/delivery.md."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workflows.domain.errors import RuleError

MAX_HEADERS = 64
MAX_NAME_BYTES = 256
MAX_VALUE_BYTES = 8 * 1024
"""What common servers take in one line (Apache, nginx)."""
MAX_TOTAL_BYTES = 32 * 1024
"""Names and values together."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, section 5.6.2."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""RFC 9110, section 5.5: a value has no control character but the tab."""

_CONNECTION = frozenset(
    {
        "connection", "expect", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_FRAMING = frozenset({"content-length", "host"})
_OURS = frozenset({"idempotency-key", "traceparent", "tracestate"})
_OUR_PREFIXES = ("carillon-", "webhook-")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise RuleError, with the pointer ``/target/headers/NAME``, for the first header that breaks a rule."""
    if len(headers) > MAX_HEADERS:
        raise RuleError(
            f"There are {len(headers)} headers; at most {MAX_HEADERS} are allowed.",
            code="headers_too_many",
            pointer="/target/headers",
        )
    seen: dict[str, str] = {}
    total = 0
    for name, value in headers.items():
        pointer = "/target/headers/" + name.replace("~", "~0").replace("/", "~1")
        if message := _name_fault(name) or _value_fault(name, value):
            raise RuleError(message, code="header_invalid", pointer=pointer)
        lower = name.lower()
        if message := _reserved(name, lower):
            raise RuleError(message, code="header_reserved", pointer=pointer)
        if lower in seen:
            raise RuleError(
                f"The header {name} is there twice (as {seen[lower]} too); names have no case, keep one.",
                code="header_invalid",
                pointer=pointer,
            )
        seen[lower] = name
        total += len(name) + len(value.encode())
    if total > MAX_TOTAL_BYTES:
        raise RuleError(
            f"The headers have {total} bytes; at most {MAX_TOTAL_BYTES} are allowed.",
            code="headers_too_large",
            pointer="/target/headers",
        )


def _name_fault(name: str) -> str | None:
    if len(name) > MAX_NAME_BYTES:
        return f"The header name has {len(name)} characters; at most {MAX_NAME_BYTES} are allowed."
    if not _TOKEN.fullmatch(name):
        return f"{name!r} is not a header name; use letters, digits and hyphens."
    return None


def _value_fault(name: str, value: str) -> str | None:
    if found := _CONTROL.search(value):
        return f"The value of {name} has a control character at position {found.start()}; take it out."
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"The value of {name} is not Unicode text (half of a surrogate pair)."
    if size > MAX_VALUE_BYTES:
        return f"The value of {name} has {size} bytes; at most {MAX_VALUE_BYTES} are allowed."
    return None


def _reserved(name: str, lower: str) -> str | None:
    if lower in _CONNECTION:
        return f"The header {name} belongs to the connection and cannot be set; take it out."
    if lower in _FRAMING:
        return f"The header {name} is derived from the URL and the body and cannot be set; take it out."
    if lower in _OURS or lower.startswith(_OUR_PREFIXES):
        return f"The header {name} is set by Carillon on every delivery; choose another name."
    return None
