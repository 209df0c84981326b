"""The keys of an OpenID Connect provider, by the URL of its JWKS.

A key's own ``kty``, ``crv`` and ``alg`` decide which algorithm it verifies, never a token's header; only
RS256 and ES256 are taken, so that no key published there is ever used as a shared secret.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from api.auth.keys import VerificationKey
from api.problems import Kind, ProblemError
from infra.temporal.errors import SetupError

log = logging.getLogger(__name__)

FETCH_WITHIN_S = 3.0
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
REFETCH_AFTER_S = 30.0
"""The least time between two fetches, whatever tokens ask for."""
FIRST_AGAIN_S = 5.0
"""The same, as long as no fetch has succeeded."""
KEPT_S = 600.0
"""Keys older than this are fetched again, so that one that was withdrawn is not trusted for ever."""
MIN_RSA_BITS = 2048

Monotonic = Callable[[], float]


class JwksError(Exception):
    """The key set could not be had, or is none; the last good one stays."""


class JwksKeys:
    """A :class:`~api.auth.keys.KeySource` over one URL.

    A token with an unknown ``kid`` causes one fetch in thirty seconds at most; while a fetch fails the
    last good keys stay in use.
    """

    def __init__(self, url: str, monotonic: Monotonic) -> None:
        check_url(url)
        self._url = url
        self._monotonic = monotonic
        self._keys: dict[str | None, list[VerificationKey]] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def key_for(self, header: Mapping[str, Any]) -> VerificationKey | None:
        """The key with the token's ``kid``; without one, the only key there is.

        Raises 503 as long as no key set could be fetched: then nobody knows whether a token is good.
        """
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            return None
        found = self._find(kid)
        if found is None:
            await self._refresh()
            if self._fetched_at is None:
                raise ProblemError(
                    Kind.KEYS_UNAVAILABLE,
                    "The keys that verify tokens could not be fetched yet; try again.",
                    headers={"Retry-After": str(round(FIRST_AGAIN_S))},
                )
            return self._find(kid)
        if self._fetched_at is not None and self._monotonic() - self._fetched_at > KEPT_S:
            self._begin()  # nobody waits for it: the keys at hand are good
        return found

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _find(self, kid: str | None) -> VerificationKey | None:
        if kid is None:
            candidates = [key for keys in self._keys.values() for key in keys]
        else:
            candidates = self._keys.get(kid, [])
        return candidates[0] if len(candidates) == 1 else None

    async def _refresh(self) -> None:
        fetching = self._begin()
        if fetching is not None:
            await asyncio.shield(fetching)

    def _begin(self) -> asyncio.Task[None] | None:
        """The fetch that is under way, or a new one if the last lies back far enough."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        now = self._monotonic()
        apart = FIRST_AGAIN_S if self._fetched_at is None else REFETCH_AFTER_S
        if self._tried_at is not None and now - self._tried_at < apart:
            return None
        self._tried_at = now
        self._fetching = asyncio.create_task(self._fetch(), name="fetch the JWKS")
        return self._fetching

    async def _fetch(self) -> None:
        try:
            self._keys = parse_jwks(await _read(self._url))
        except (JwksError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("the JWKS cannot be fetched, the keys known stay: %s", error or type(error).__name__)
            return
        self._fetched_at = self._monotonic()


def check_url(url: str) -> None:
    """Raises SetupError for a URL that others could answer in the provider's place."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.hostname and not parts.username and not parts.fragment:
        if parts.scheme == "https":
            return
        if parts.scheme == "http" and _is_loopback(parts.hostname):
            return
    raise SetupError(
        "CARILLON_JWKS_URL must be an https:// URL, without a password; http:// only on the loopback",
        code="jwks_url",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _read(url: str) -> bytes:
    """Through the proxy that the environment names, if one does; never on the loopback."""
    session = aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=FETCH_WITHIN_S),
        trust_env=url.startswith("https:"),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    headers = {"accept": "application/json"}
    async with session, session.get(url, allow_redirects=False, headers=headers) as answer:
        if answer.status != 200:
            raise JwksError(f"the URL answers {answer.status}")
        read = bytearray()
        async for chunk in answer.content.iter_chunked(64 * 1024):
            read += chunk
            if len(read) > MAX_BYTES:
                raise JwksError(f"the answer is larger than {MAX_BYTES // 1024} KiB")
        return bytes(read)


def parse_jwks(raw: bytes) -> dict[str | None, list[VerificationKey]]:
    """By ``kid``: the keys that verify signatures. Others in the set are left out, each with a word.

    Two keys of one ``kid`` are both kept, so that neither is taken for the other: they verify nothing.
    Raises JwksError for what is no key set, or one without a usable key.
    """
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise JwksError("the answer is not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise JwksError(f"the answer has no list `keys` of at most {MAX_KEYS}")
    keys: dict[str | None, list[VerificationKey]] = {}
    for entry in listed:
        key = _verification_key(entry) if isinstance(entry, dict) else None
        if key is not None:
            kid = entry.get("kid")
            keys.setdefault(kid if isinstance(kid, str) else None, []).append(key)
    if not keys:
        raise JwksError("the answer holds no key for RS256 or ES256")
    return keys


def _verification_key(entry: dict[str, Any]) -> VerificationKey | None:
    match entry.get("kty"), entry.get("crv"):
        case "RSA", _:
            algorithm = "RS256"
        case "EC", "P-256":
            algorithm = "ES256"
        case _:
            return None
    operations = entry.get("key_ops")
    for_signatures = entry.get("use") in (None, "sig") and (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    )
    if not for_signatures or entry.get("alg") not in (None, algorithm):
        return None
    try:
        # Public members only: a private key published by mistake must not be read as one.
        public: dict[str, Any] = {
            name: entry[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in entry
        }
        key = PyJWK.from_dict(public, algorithm=algorithm).key
    except (PyJWTError, ValueError, TypeError, KeyError) as error:
        log.warning("a key of the JWKS cannot be read: %s", error)
        return None
    if algorithm == "RS256" and key.key_size < MIN_RSA_BITS:
        log.warning("a key of the JWKS has fewer than %d bits and is not used", MIN_RSA_BITS)
        return None
    return VerificationKey(key, (algorithm,))
