"""Tokens for the API, signed with the installation's secret."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import jwt

from api.auth.keys import MIN_SECRET_BYTES
from api.auth.principal import SCOPES
from infra.settings import Settings
from infra.temporal.errors import SetupError
from workflows.contracts.names import TENANT_PATTERN

DEFAULT_SCOPE = "jobs:read jobs:write"


def check_tenant(tenant: str) -> None:
    """Raise SetupError (``tenant_malformed``) for what can be the name of none."""
    if not re.fullmatch(TENANT_PATTERN, tenant):
        raise SetupError(
            f"{tenant!r} is no tenant: lower-case letters, digits, hyphens; no hyphen first; at most 63",
            code="tenant_malformed",
        )


def issue_token(settings: Settings, *, tenant: str, scope: str, subject: str, ttl: timedelta) -> str:
    """A JWT (HS256) with ``tenant``, ``scope`` and the registered claims; issuer and audience if configured.

    Raises SetupError for a malformed tenant, an unknown scope, a ttl that is not positive, and a missing or
    short secret.
    """
    check_tenant(tenant)
    scopes = scope.replace(",", " ").split()
    unknown = [name for name in scopes if name not in SCOPES]
    if unknown or not scopes:
        raise SetupError(
            f"unknown scope {' '.join(unknown) or '(none)'}; there are: {' '.join(SCOPES)}",
            code="scope_unknown",
        )
    if ttl <= timedelta(0):
        raise SetupError("the time to live must be positive, as in PT12H", code="ttl_not_positive")
    secret = settings.jwt_secret.get_secret_value()
    if len(secret.encode()) < MIN_SECRET_BYTES:
        raise SetupError(
            f"no secret to sign with: {settings.data_dir} holds no installation of carillon up (name it with "
            f"--data-dir) and CARILLON_JWT_SECRET has fewer than {MIN_SECRET_BYTES} bytes",
            code="jwt_secret_missing",
        )
    now = int(time.time())
    claims: dict[str, str | int] = {
        "tenant": tenant,
        "scope": " ".join(dict.fromkeys(scopes)),
        "sub": subject,
        "iat": now,
        "exp": now + max(1, int(ttl.total_seconds())),
    }
    if settings.jwt_issuer:
        claims["iss"] = settings.jwt_issuer
    if settings.jwt_audience:
        claims["aud"] = settings.jwt_audience
    return jwt.encode(claims, secret, algorithm="HS256")
