"""Who may call: every token that is not exactly right is a 401, and nothing about it is a 500."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from api.auth.keys import SharedSecret
from api.auth.verifier import TokenVerifier
from api.problems import ProblemError
from infra.temporal.errors import SetupError
from tests.api.tokens import SECRET, token


def verifier(**wanted: Any) -> TokenVerifier:
    return TokenVerifier(
        SharedSecret(SecretStr(SECRET)), issuer=wanted.get("issuer"), audience=wanted.get("audience")
    )


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = (json.dumps(part).encode() for part in (header, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


async def test_the_tenant_subject_and_scopes_are_the_tokens() -> None:
    principal = await verifier().principal("Bearer " + token("acme", "jobs:read jobs:write", sub="ann"))
    assert (principal.tenant, principal.subject) == ("acme", "ann")
    assert principal.scopes == {"jobs:read", "jobs:write"}


CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": int(time.time()) - 3600},
    "without expiry": {"exp": None},
    "expiry that is no time": {"exp": "tomorrow"},
    "not valid yet": {"nbf": int(time.time()) + 3600},
    "without tenant": {"tenant": None},
    "tenant in capitals": {"tenant": "Acme"},
    "tenant with a line break": {"tenant": "acme\n"},
    "tenant with a slash": {"tenant": "acme/x"},
    "tenant that is no text": {"tenant": ["acme"]},
    "scope as a list": {"scope": ["jobs:read"]},
    "subject that is no text": {"sub": 7},
}


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS.keys())
async def test_claims_that_are_refused(claims: dict[str, Any]) -> None:
    made = {"tenant": "acme", "scope": "jobs:read", "sub": "x", "exp": int(time.time()) + 60} | claims
    encoded = jwt.api_jws.encode(
        json.dumps({name: value for name, value in made.items() if value is not None}).encode(), SECRET
    )
    with pytest.raises(ProblemError) as refused:
        await verifier().principal(f"Bearer {encoded}")
    assert refused.value.kind.status == 401
    assert refused.value.headers["WWW-Authenticate"].startswith("Bearer")


FORMS = {
    "absent": None,
    "another scheme": "Basic YTpi",
    "no token": "Bearer ",
    "not a token": "Bearer x.y.z",
    "not signed": "Bearer " + unsigned({"alg": "none"}, {"tenant": "acme", "exp": 4e9}),
    "another secret": "Bearer " + token(secret="another secret of more than thirty-two bytes"),
    "another algorithm": "Bearer " + jwt.encode({"tenant": "acme", "exp": 4e9}, "x" * 64, algorithm="HS512"),
    "right secret, another algorithm": "Bearer "
    + jwt.encode({"tenant": "acme", "exp": 4e9}, SECRET + "x" * 40, algorithm="HS384"),
    "too long": "Bearer " + "a" * 10_000,
}


@pytest.mark.parametrize("header", FORMS.values(), ids=FORMS.keys())
async def test_headers_that_are_refused(header: str | None) -> None:
    with pytest.raises(ProblemError) as refused:
        await verifier().principal(header)
    assert refused.value.kind.status == 401


@pytest.mark.parametrize(
    ("claims", "accepted"),
    [
        ({"iss": "us", "aud": "carillon"}, True),
        ({"iss": "us", "aud": ["other", "carillon"]}, True),
        ({"iss": "them", "aud": "carillon"}, False),
        ({"iss": "us", "aud": "other"}, False),
        ({"aud": "carillon"}, False),
        ({"iss": "us"}, False),
    ],
    ids=["both", "one of several audiences", "other issuer", "other audience", "no issuer", "no audience"],
)
async def test_issuer_and_audience_are_checked_where_configured(
    claims: dict[str, Any], accepted: bool
) -> None:
    strict = verifier(issuer="us", audience="carillon")
    if accepted:
        assert (await strict.principal("Bearer " + token(**claims))).tenant == "acme"
    else:
        with pytest.raises(ProblemError):
            await strict.principal("Bearer " + token(**claims))


async def test_an_audience_nobody_asked_for_does_no_harm() -> None:
    assert (await verifier().principal("Bearer " + token(aud="other"))).tenant == "acme"


@given(st.text(max_size=200))
async def test_no_text_is_worse_than_a_401(text: str) -> None:
    with pytest.raises(ProblemError):
        await verifier().principal("Bearer " + text)


@pytest.mark.parametrize("secret", ["", "short"])
def test_a_missing_or_short_secret_stops_the_process(secret: str) -> None:
    with pytest.raises(SetupError, match="CARILLON_JWT_SECRET"):
        SharedSecret(SecretStr(secret))
