"""From the ``Authorization`` header to a principal. Everything wrong with a token is a 401."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from api.auth.keys import KeySource, decode_options
from api.auth.principal import Principal
from api.problems import Kind, ProblemError
from workflows.contracts.names import TENANT_PATTERN

MAX_TOKEN_BYTES = 8 * 1024
_LATEST = 253_402_300_799
"""The last second of the year 9999."""
_TENANT = re.compile(TENANT_PATTERN)


def _refused(detail: str, *, error: str | None = "invalid_token") -> ProblemError:
    challenge = 'Bearer realm="carillon"' + (f', error="{error}"' if error else "")
    return ProblemError(Kind.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": challenge})


class TokenVerifier:
    """Checks signature, expiry, issuer, audience and the shape of our own claims."""

    def __init__(
        self,
        keys: KeySource,
        *,
        issuer: str | None,
        audience: str | None,
        leeway: timedelta = timedelta(seconds=30),
    ) -> None:
        """``leeway`` is the allowed difference between the issuer's clock and ours."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._leeway = leeway

    async def close(self) -> None:
        await self._keys.close()

    async def principal(self, authorization: str | None) -> Principal:
        if not authorization:
            raise _refused("Send `Authorization: Bearer <token>`; `carillon token` prints one.", error=None)
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _refused("The Authorization header must be `Bearer <token>`.")
        if len(token) > MAX_TOKEN_BYTES:
            raise _refused(f"The token is longer than {MAX_TOKEN_BYTES} bytes.")
        return _principal(await self._claims(token))

    async def _claims(self, token: str) -> dict[str, Any]:
        try:
            key = await self._keys.key_for(jwt.get_unverified_header(token))
            if key is None:
                raise _refused("No key of this installation matches the token.")
            return jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway,
                options=decode_options(issuer=self._issuer, audience=self._audience),
            )
        except jwt.ExpiredSignatureError:
            raise _refused("The token has expired; get a new one.") from None
        except jwt.ImmatureSignatureError:
            raise _refused("The token is not valid yet (`nbf`, `iat`); compare the clocks.") from None
        except jwt.MissingRequiredClaimError as error:
            raise _refused(f"The token lacks the claim `{error.claim}`.") from None
        except jwt.InvalidIssuerError:
            raise _refused("The token was issued by somebody else (`iss`).") from None
        except jwt.InvalidAudienceError:
            raise _refused("The token is meant for somebody else (`aud`).") from None
        except (jwt.PyJWTError, ValueError, RecursionError, OverflowError, TypeError):
            raise _refused("The token's signature or form is not valid.") from None


def _principal(claims: dict[str, Any]) -> Principal:
    tenant, scope, subject = claims.get("tenant"), claims.get("scope", ""), claims.get("sub", "")
    if not isinstance(tenant, str) or _TENANT.fullmatch(tenant) is None:
        raise _refused(f"The claim `tenant` must match {TENANT_PATTERN}.")
    if not isinstance(scope, str):
        raise _refused("The claim `scope` must be one text, its scopes separated by spaces.")
    if not isinstance(subject, str) or not subject.isprintable() or len(subject) > 255:
        raise _refused("The claim `sub` must be a printable text of at most 255 characters.")
    expires_at = datetime.fromtimestamp(min(int(claims["exp"]), _LATEST), UTC)
    return Principal(tenant=tenant, subject=subject, scopes=frozenset(scope.split()), expires_at=expires_at)
