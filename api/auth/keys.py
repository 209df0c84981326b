"""Where the key that verifies a token comes from. Each key pins the algorithms it may be used with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jwt.types import Options
from pydantic import SecretStr

from infra.temporal.errors import SetupError

MIN_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key and the only algorithms it may verify; never taken from the token's own header."""

    key: Any
    algorithms: tuple[str, ...]


class KeySource(Protocol):
    """Finds the key of a token by its unverified header (``kid``); None if it knows none.

    A source that has to fetch its keys (a JWKS URL) does so here, hence the ``async``.
    """

    async def key_for(self, header: Mapping[str, Any]) -> VerificationKey | None: ...

    async def close(self) -> None:
        """Ends what the source does beside answering."""


class SharedSecret:
    """The installation's own HS256 secret."""

    def __init__(self, secret: SecretStr) -> None:
        value = secret.get_secret_value().encode()
        if len(value) < MIN_SECRET_BYTES:
            raise SetupError(
                f"CARILLON_JWT_SECRET must be set to at least {MIN_SECRET_BYTES} bytes; "
                "`openssl rand -hex 32` makes one",
                code="jwt_secret",
            )
        self._key = VerificationKey(value, ("HS256",))

    async def key_for(self, header: Mapping[str, Any]) -> VerificationKey | None:
        return self._key

    async def close(self) -> None:
        pass


def decode_options(*, issuer: str | None, audience: str | None) -> Options:
    """What a token must carry: ``iss`` and ``aud`` where the installation names them."""
    required = ["exp", *(["iss"] if issuer else []), *(["aud"] if audience else [])]
    return Options(require=required, verify_aud=audience is not None, verify_iss=issuer is not None)
