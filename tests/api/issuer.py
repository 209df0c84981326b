"""An OpenID Connect provider as far as tokens need one: a JWKS over HTTP, and keys that turn over."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, Literal

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "carillon"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@cache
def private_key(kind: Literal["RS256", "ES256"], name: str) -> PrivateKey:
    """Made once a session: an RSA key takes a while."""
    if kind == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Issuer:
    """Serves its public keys at ``url``, or ``raw`` instead, with ``status``."""

    def __init__(self) -> None:
        self.keys: dict[str, PrivateKey] = {}
        self.extra: list[Any] = []
        self.status = 200
        self.raw: bytes | None = None
        self.fetched = 0
        self.url = ""

    def add(self, kid: str, kind: Literal["RS256", "ES256"] = "RS256") -> None:
        self.keys[kid] = private_key(kind, kid)

    def public(self, kid: str) -> dict[str, Any]:
        key = self.keys[kid]
        if isinstance(key, ec.EllipticCurvePrivateKey):
            made = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        else:
            made = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return {**made, "kid": kid, "use": "sig"}

    def document(self) -> bytes:
        return json.dumps({"keys": [*map(self.public, self.keys), *self.extra]}).encode()

    def token(self, kid: str, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        key = self.keys[kid]
        algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
        made = {
            "tenant": "acme", "scope": "jobs:read jobs:write", "sub": "ann",
            "iss": ISSUER, "aud": AUDIENCE, "iat": int(time.time()), "exp": int(time.time()) + 60,
        } | claims  # fmt: skip
        kept = {name: value for name, value in made.items() if value is not None}
        return jwt.encode(kept, key, algorithm, {"kid": kid} if header is None else header)

    async def _serve(self, _: web.Request) -> web.Response:
        self.fetched += 1
        body = self.document() if self.raw is None else self.raw
        return web.Response(body=body, status=self.status, content_type="application/json")


@contextlib.asynccontextmanager
async def serving_issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/jwks", issuer._serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
    try:
        yield issuer
    finally:
        await runner.cleanup()
