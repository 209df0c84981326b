"""Tokens of a provider: its keys over a real HTTP server, keys that turn over, and algorithms confused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pydantic import SecretStr

from api.app import create_app
from api.auth.jwks import KEPT_S, MAX_BYTES, REFETCH_AFTER_S, JwksError, JwksKeys, check_url, parse_jwks
from api.auth.keys import SharedSecret
from api.auth.sources import BySort
from api.auth.verifier import TokenVerifier
from api.problems import ProblemError
from infra.settings import Settings
from infra.temporal.errors import SetupError
from tests.api.conftest import client_of, settings_in, started
from tests.api.issuer import AUDIENCE, ISSUER, Issuer, private_key, serving_issuer
from tests.api.tokens import SECRET, token


class Hand:
    """A monotonic clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with serving_issuer() as served:
        served.add("one")
        yield served


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
async def keys(issuer: Issuer, hand: Hand) -> AsyncIterator[JwksKeys]:
    source = JwksKeys(issuer.url, hand)
    yield source
    await source.close()


def verifier(keys: JwksKeys, *, with_secret: bool = True) -> TokenVerifier:
    source = BySort(SharedSecret(SecretStr(SECRET)), keys) if with_secret else keys
    return TokenVerifier(source, issuer=ISSUER, audience=AUDIENCE)


async def accepted(tokens: TokenVerifier, made: str) -> bool:
    try:
        await tokens.principal(f"Bearer {made}")
    except ProblemError as problem:
        if problem.kind.status != 401:
            raise
        return False
    return True


@pytest.mark.parametrize("kind", ["RS256", "ES256"])
async def test_a_providers_token_opens_the_api_beside_our_own(
    issuer: Issuer, keys: JwksKeys, kind: Literal["RS256", "ES256"]
) -> None:
    issuer.add("two", kind)
    tokens = verifier(keys)
    principal = await tokens.principal("Bearer " + issuer.token("two"))
    assert (principal.tenant, principal.subject) == ("acme", "ann")
    assert principal.scopes == {"jobs:read", "jobs:write"}
    assert await accepted(tokens, token(iss=ISSUER, aud=AUDIENCE))
    assert issuer.fetched == 1


def forged(header: dict[str, Any], secret: bytes) -> str:
    """A token signed by HMAC with whatever bytes an attacker may choose."""
    claims = {"tenant": "acme", "exp": int(time.time()) + 60, "iss": ISSUER, "aud": AUDIENCE}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    signature = hmac.new(secret, b".".join(parts), hashlib.sha256).digest()
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


async def test_no_header_makes_a_public_key_a_secret_or_the_secret_a_key(
    issuer: Issuer, keys: JwksKeys
) -> None:
    """The public key is public: were it taken as an HMAC secret, anybody could sign."""
    public = issuer.keys["one"].public_key()
    forms = [
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
        json.dumps(issuer.public("one")).encode(),
        b"",
    ]
    headers = [
        {"alg": alg, "kid": "one", "typ": "JWT"} for alg in ("HS256", "RS256", "ES256", "none", "HS512")
    ]
    for tokens in (verifier(keys), verifier(keys, with_secret=False)):
        for header in headers:
            for secret in forms:
                assert not await accepted(tokens, forged(header, secret))
            unsigned = forged(header, b"x").rpartition(".")[0] + "."
            assert not await accepted(tokens, unsigned)
        assert not await accepted(tokens, forged({"alg": "RS256", "kid": "one"}, SECRET.encode()))
    assert not await accepted(verifier(keys, with_secret=False), token(iss=ISSUER, aud=AUDIENCE))


async def test_a_key_verifies_its_own_algorithm_only(issuer: Issuer, keys: JwksKeys) -> None:
    issuer.add("curve", "ES256")
    tokens = verifier(keys)
    assert await accepted(tokens, issuer.token("one"))
    for algorithm in ("RS384", "RS512", "PS256"):
        made = jwt.encode(jwt.decode(issuer.token("one"), options={"verify_signature": False}),
                          issuer.keys["one"], algorithm, {"kid": "one"})  # fmt: skip
        assert not await accepted(tokens, made), algorithm
    assert not await accepted(tokens, issuer.token("one", header={"kid": "curve"}))
    assert not await accepted(tokens, issuer.token("curve", header={"kid": "one"}))


async def test_a_token_without_kid_is_taken_only_while_one_key_is_published(
    issuer: Issuer, keys: JwksKeys, hand: Hand
) -> None:
    tokens = verifier(keys)
    assert await accepted(tokens, issuer.token("one", header={}))
    issuer.add("two")
    hand.now += REFETCH_AFTER_S
    assert await accepted(tokens, issuer.token("two"))
    assert not await accepted(tokens, issuer.token("one", header={}))
    assert not await accepted(tokens, issuer.token("one", header={"kid": ""}))


async def test_keys_turn_over_and_unknown_ones_cause_one_fetch_in_half_a_minute(
    issuer: Issuer, keys: JwksKeys, hand: Hand
) -> None:
    tokens = verifier(keys)
    assert await accepted(tokens, issuer.token("one"))
    issuer.add("two")
    made = issuer.token("two")
    assert not await accepted(tokens, made), "asked a moment ago"
    for _ in range(5):
        assert not await accepted(tokens, issuer.token("one", header={"kid": "nobody's"}))
    assert issuer.fetched == 1
    hand.now += REFETCH_AFTER_S
    crowd = await asyncio.gather(*(accepted(tokens, made) for _ in range(20)))
    assert all(crowd)
    assert issuer.fetched == 2
    old = issuer.token("one")
    del issuer.keys["one"]
    hand.now += KEPT_S + 1
    assert await accepted(tokens, old), "known until the fetch that this call begins"
    async with asyncio.timeout(30):
        while await accepted(tokens, old):
            await asyncio.sleep(0.01)
    assert await accepted(tokens, made)


BROKEN: dict[str, tuple[int, bytes]] = {
    "an error": (500, b"{}"),
    "a redirect": (302, b""),
    "not JSON": (200, b"<html>"),
    "no list": (200, b'{"keys": {}}'),
    "no key": (200, b'{"keys": []}'),
    "too large": (200, b'{"keys": [' + b" " * MAX_BYTES + b"]}"),
    "too deep": (200, b"[" * 100_000),
}


@pytest.mark.parametrize(("status", "raw"), BROKEN.values(), ids=BROKEN.keys())
async def test_the_last_good_keys_stay_when_the_url_is_away(
    issuer: Issuer, keys: JwksKeys, hand: Hand, status: int, raw: bytes
) -> None:
    tokens = verifier(keys)
    assert await accepted(tokens, issuer.token("one"))
    issuer.status, issuer.raw = status, raw
    hand.now += REFETCH_AFTER_S
    assert not await accepted(tokens, issuer.token("one", header={"kid": "new"}))
    assert issuer.fetched == 2
    assert await accepted(tokens, issuer.token("one"))


async def test_without_any_keys_the_answer_is_503_and_they_are_asked_for_again(
    issuer: Issuer, keys: JwksKeys, hand: Hand
) -> None:
    """Nobody knows whether the token is good, so it is not refused."""
    issuer.status = 503
    tokens = verifier(keys)
    with pytest.raises(ProblemError) as refused:
        await tokens.principal("Bearer " + issuer.token("one"))
    assert refused.value.kind.status == 503
    assert int(refused.value.headers["Retry-After"]) >= 1
    issuer.status = 200
    hand.now += 5
    assert await accepted(tokens, issuer.token("one"))


CLAIMS: dict[str, tuple[dict[str, int | str | None], bool]] = {
    "expired within the leeway": ({"exp": -20}, True),
    "expired": ({"exp": -40}, False),
    "valid within the leeway": ({"nbf": 20}, True),
    "not valid yet": ({"nbf": 40}, False),
    "issued within the leeway": ({"iat": 20}, True),
    "issued in the future": ({"iat": 40}, False),
    "no expiry": ({"exp": None}, False),
    "another issuer": ({"iss": "https://issuer.example/"}, False),
    "no issuer": ({"iss": None}, False),
    "another audience": ({"aud": "carillon2"}, False),
    "no audience": ({"aud": None}, False),
    "no tenant": ({"tenant": None}, False),
}


@pytest.mark.parametrize(("claims", "wanted"), CLAIMS.values(), ids=CLAIMS.keys())
async def test_claims_are_judged_with_half_a_minute_of_leeway(
    issuer: Issuer, keys: JwksKeys, claims: dict[str, Any], wanted: bool
) -> None:
    now = int(time.time())
    made: dict[str, Any] = {
        name: now + value if isinstance(value, int) else value for name, value in claims.items()
    }
    assert await accepted(verifier(keys), issuer.token("one", **made)) is wanted


def _jwk(key: Any, algorithm: Any, **more: Any) -> dict[str, Any]:
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": "k", **more}


def test_keys_for_anything_else_are_left_out() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    good = private_key("RS256", "one")
    assert isinstance(good, rsa.RSAPrivateKey)
    unusable = [
        _jwk(good, RSAAlgorithm, use="enc"),
        _jwk(good, RSAAlgorithm, alg="RS512"),
        _jwk(good, RSAAlgorithm, key_ops=["encrypt"]),
        _jwk(rsa.generate_private_key(public_exponent=65537, key_size=1024), RSAAlgorithm),
        _jwk(ec.generate_private_key(ec.SECP384R1()), ECAlgorithm),
        _jwk(Ed25519PrivateKey.generate(), OKPAlgorithm),
        {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET.encode()).decode(), "kid": "k", "alg": "HS256"},
        {"kty": "RSA", "n": "!", "e": 3, "kid": "k"},
        {"kty": ["RSA"]},
        "nonsense",
    ]
    with pytest.raises(JwksError):
        parse_jwks(json.dumps({"keys": unusable}).encode())
    [[kept]] = parse_jwks(json.dumps({"keys": [*unusable, _jwk(good, RSAAlgorithm)]}).encode()).values()
    assert kept.algorithms == ("RS256",)
    private = {**RSAAlgorithm.to_jwk(good, as_dict=True), "kid": "k", "key_ops": ["sign", "verify"]}
    [[kept]] = parse_jwks(json.dumps({"keys": [private]}).encode()).values()
    assert not hasattr(kept.key, "sign")


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://issuer.example/jwks", True),
        ("http://127.0.0.1:8080/jwks", True),
        ("http://[::1]/jwks", True),
        ("http://localhost/jwks", True),
        ("http://issuer.example/jwks", False),
        ("http://127.0.0.1.example/jwks", False),
        ("https://user:secret@issuer.example/jwks", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("https://[::1", False),
        ("", False),
    ],
)
def test_the_url_of_a_jwks_is_https_or_on_the_loopback(url: str, good: bool) -> None:
    if good:
        check_url(url)
        return
    with pytest.raises(SetupError, match="CARILLON_JWKS_URL"):
        check_url(url)


@pytest.mark.parametrize("missing", ["jwt_issuer", "jwt_audience"])
def test_a_process_with_a_jwks_but_no_issuer_or_audience_does_not_start(tmp_path: Path, missing: str) -> None:
    """The provider signs tokens for others too."""
    named = {"jwks_url": "https://issuer.example/jwks", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with pytest.raises(SetupError, match="CARILLON_JWT_ISSUER and CARILLON_JWT_AUDIENCE"):
        create_app(settings_in(tmp_path, **{**named, missing: None}))
    create_app(settings_in(tmp_path, **named, jwt_secret=""))


async def test_the_whole_api_takes_a_providers_tokens(issuer: Issuer, tmp_path: Path) -> None:
    settings: Settings = settings_in(tmp_path, jwks_url=issuer.url, jwt_issuer=ISSUER, jwt_audience=AUDIENCE)
    async with started(create_app(settings)) as app, client_of(app) as client:
        client.headers["authorization"] = f"Bearer {issuer.token('one')}"
        assert (await client.get("/v1/jobs")).status_code == 200
        client.headers["authorization"] = f"Bearer {issuer.token('one', aud='other')}"
        assert (await client.get("/v1/jobs")).status_code == 401
