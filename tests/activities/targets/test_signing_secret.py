"""The signing secret that is derived for a tenant."""

from __future__ import annotations

import base64

import pytest

from infra.signing import tenant_signing_secret


def test_it_is_stable_and_well_formed() -> None:
    """A recorded value: targets hold this secret, so a release must not change it."""
    secret = tenant_signing_secret("an installation's secret", "acme")
    assert secret == "whsec_QLku7PDj3hqAqlCA8eP2p1I7Jnn56Zn4wCRsGyy0Y6E="
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32


def test_each_tenant_and_installation_has_its_own() -> None:
    secrets = {tenant_signing_secret(secret, tenant) for secret in ("a", "b") for tenant in ("x", "y")}
    assert len(secrets) == 4


def test_no_installation_secret_means_no_signing() -> None:
    with pytest.raises(ValueError, match="CARILLON_SIGNING_SECRET"):
        tenant_signing_secret("", "acme")
