"""What an Idempotency-Key stands for: a fingerprint of the request, and names derived from the key."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from api.problems import invalid_parameter

MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """``fingerprint`` is the same for the same call with the same JSON, however it is written."""

    tenant: str
    key: str
    fingerprint: str

    def derive(self, purpose: str) -> str:
        """A stable name of 26 characters, ``[a-z2-7]``: another one for each purpose."""
        digest = hashlib.sha256(f"{purpose}\n{self.tenant}\n{self.key}".encode()).digest()
        return base64.b32encode(digest[:16]).decode().rstrip("=").lower()

    def derive_exact(self, purpose: str) -> str:
        """As :meth:`derive`, and another one for another request under the same key."""
        return self.derive(f"{purpose}\n{self.fingerprint}")


def fingerprint(call: str, body: Any) -> str:
    """``call`` names method and path, so that a key used for two calls has two fingerprints."""
    text = json.dumps([call, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_key(header: str | None, *, tenant: str, call: str, body: Any) -> IdempotencyKey | None:
    """The key of a request, if it has one."""
    if header is None:
        return None
    if not 1 <= len(header) <= MAX_KEY or not (header.isascii() and header.isprintable()):
        raise invalid_parameter(
            "Idempotency-Key", f"Give 1 to {MAX_KEY} printable ASCII characters; a UUID does well."
        )
    return IdempotencyKey(tenant, header, fingerprint(call, body))
