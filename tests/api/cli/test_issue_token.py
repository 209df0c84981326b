"""Tokens carry the claims that the API asks for."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import jwt
import pytest

from api.cli.token import issue_token
from infra.settings import Settings
from infra.temporal.errors import SetupError

SECRET = "a-secret-of-thirty-two-bytes-or-more"


def _issue(settings: Settings | None = None, **changes: Any) -> str:
    values: dict[str, Any] = {
        "tenant": "acme",
        "scope": "jobs:read jobs:write",
        "subject": "me",
        "ttl": timedelta(hours=1),
    }
    return issue_token(settings or Settings(jwt_secret=SECRET), **{**values, **changes})


def test_claims() -> None:
    claims = jwt.decode(_issue(), SECRET, algorithms=["HS256"])
    assert abs(claims["iat"] - time.time()) < 5
    assert claims["exp"] - claims.pop("iat") == 3600
    claims.pop("exp")
    assert claims == {"tenant": "acme", "scope": "jobs:read jobs:write", "sub": "me"}


def test_issuer_and_audience_as_configured() -> None:
    settings = Settings(jwt_secret=SECRET, jwt_issuer="https://issuer", jwt_audience="carillon")
    token = _issue(settings)
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], issuer="https://issuer", audience="carillon")
    assert (claims["iss"], claims["aud"]) == ("https://issuer", "carillon")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tenant": "Acme"}, "tenant_malformed"),
        ({"tenant": "-acme"}, "tenant_malformed"),
        ({"tenant": "a" * 64}, "tenant_malformed"),
        ({"tenant": "acme\n"}, "tenant_malformed"),
        ({"scope": "jobs:read jobs:all"}, "scope_unknown"),
        ({"scope": " "}, "scope_unknown"),
        ({"ttl": timedelta(0)}, "ttl_not_positive"),
        ({"settings": Settings(jwt_secret="short")}, "jwt_secret_missing"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else value,
)
def test_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(SetupError) as caught:
        _issue(**changes)
    assert caught.value.code == code
