"""The token of a callback: encrypted and authenticated, so that only an installation's own are taken.

``c1`` and base64url of nonce (12 bytes), ciphertext and tag (AES-256-GCM) over the deflated JSON of the
claims. The key is derived by HKDF-SHA256 from the installation's signing secret under a label of its own:
every process of an installation reads what another one made, and nothing is stored.
"""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import ValidationError

from workflows.contracts.callback import CallbackClaims

_LABEL = b"carillon callback token v1"
_VERSION = "c1"
_NONCE = 12
_TAG = 16
TOKEN_MAX = 8192
"""Longest token that is looked at, in characters; ours have about a thousand."""
_FORM = re.compile(rf"{_VERSION}[A-Za-z0-9_-]{{1,{TOKEN_MAX}}}")
_IN_TEXT = re.compile(rf"\b{_VERSION}[A-Za-z0-9_-]{{100,}}|(?<=/callbacks/)[^/\s\"'?#]+")
REDACTED = "[redacted]"


class NoCallbackToken(ValueError):
    """The text is no token of this installation. The message never quotes it."""


class CallbackTokens:
    """Seals and opens tokens. Raises ValueError without an installation secret."""

    def __init__(self, installation_secret: str, *, random: Callable[[int], bytes] = os.urandom) -> None:
        if not installation_secret:
            raise ValueError("there is no signing secret: set CARILLON_SIGNING_SECRET")
        derived = HKDF(SHA256(), length=32, salt=None, info=_LABEL).derive(installation_secret.encode())
        self._cipher = AESGCM(derived)
        self._random = random

    def seal(self, claims: CallbackClaims) -> str:
        """URL-safe text. Two of the same claims differ."""
        nonce = self._random(_NONCE)
        plain = zlib.compress(claims.model_dump_json(exclude_defaults=True).encode())
        sealed = nonce + self._cipher.encrypt(nonce, plain, _LABEL)
        return _VERSION + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, token: str) -> CallbackClaims:
        """The claims, expired or not. Raises NoCallbackToken for everything that was not sealed here."""
        if len(token) > TOKEN_MAX or _FORM.fullmatch(token) is None:
            raise NoCallbackToken("this is no callback token")
        text = token.removeprefix(_VERSION)
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            if len(sealed) <= _NONCE + _TAG:
                raise NoCallbackToken("this is no callback token")
            plain = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _LABEL)
            return CallbackClaims.model_validate_json(zlib.decompress(plain))
        except (InvalidTag, ValidationError, zlib.error, ValueError):
            raise NoCallbackToken("this token was not given out by this installation") from None


def redact(text: str) -> str:
    """``text`` without any callback token it may quote."""
    return _IN_TEXT.sub(REDACTED, text)
