"""Which keys an installation verifies tokens with: its own secret, a provider's, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from api.auth.jwks import JwksKeys
from api.auth.keys import KeySource, SharedSecret, VerificationKey
from infra.settings import Settings
from infra.temporal.errors import SetupError


class BySort:
    """The installation's secret beside a provider's keys.

    A token says by ``alg`` whom to ask, and no more: the one asked verifies it with the algorithm of
    its own key, so a public key never serves as a secret, nor the secret as a public key.
    """

    def __init__(self, secret: KeySource, provider: KeySource) -> None:
        self._secret = secret
        self._provider = provider

    async def key_for(self, header: Mapping[str, Any]) -> VerificationKey | None:
        return await (self._secret if header.get("alg") == "HS256" else self._provider).key_for(header)

    async def close(self) -> None:
        await self._secret.close()
        await self._provider.close()


def key_source(settings: Settings, monotonic: Callable[[], float]) -> KeySource:
    """The keys of an installation. Raises SetupError for settings that would let others in.

    With a JWKS the secret may be left out: then no token of ours is taken. Issuer and audience must be
    named with it, since a provider signs tokens for others too.
    """
    if settings.jwks_url is None:
        return SharedSecret(settings.jwt_secret)
    if not settings.jwt_issuer or not settings.jwt_audience:
        raise SetupError(
            "CARILLON_JWKS_URL needs CARILLON_JWT_ISSUER and CARILLON_JWT_AUDIENCE beside it: the provider "
            "signs tokens for others too, and they must not open this API",
            code="jwks_without_issuer",
        )
    provider = JwksKeys(settings.jwks_url, monotonic)
    if not settings.jwt_secret.get_secret_value():
        return provider
    return BySort(SharedSecret(settings.jwt_secret), provider)
