"""The secrets with which deliveries are signed (Standard Webhooks, docs/delivery.md)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from standardwebhooks import Webhook

_PURPOSE = b"carillon webhook signing secret v1\x00"
"""Separates these keys from anything else that may be derived from the same installation secret."""


@lru_cache(maxsize=10_000)
def tenant_signing_secret(installation_secret: str, tenant: str) -> str:
    """The secret of a tenant that has set none: ``whsec_`` and 32 bytes in base64.

    Derived by HMAC-SHA256, so an installation stores nothing for it and ``carillon listen`` can
    verify with it. Raises ValueError without an installation secret.
    """
    if not installation_secret:
        raise ValueError("there is no signing secret: set CARILLON_SIGNING_SECRET")
    derived = hmac.new(installation_secret.encode(), _PURPOSE + tenant.encode(), hashlib.sha256).digest()
    return "whsec_" + base64.b64encode(derived).decode()


@lru_cache(maxsize=10_000)
def _signer(secret: str) -> Webhook:
    return Webhook(secret)


def signature(secrets: Sequence[str], *, message_id: str, at: datetime, body: bytes) -> str:
    """The value of ``webhook-signature``: one signature a secret, separated by blanks.

    While a secret is rotated both are valid, and a receiver accepts the message if any matches.
    ``body`` is UTF-8; ``at`` is aware, and its whole seconds are what ``webhook-timestamp`` says.
    """
    text = body.decode()
    moment = at.astimezone(UTC)
    return " ".join(_signer(secret).sign(message_id, moment, text) for secret in secrets)
