"""The secret with which a tenant's targets verify what they are sent."""

from __future__ import annotations

from api.cli.token import check_tenant
from infra.settings import Settings
from infra.signing import tenant_signing_secret
from infra.temporal.errors import SetupError


def signing_secret(settings: Settings, tenant: str) -> str:
    """``whsec_…``, as any library of Standard Webhooks takes it.

    Raises SetupError for a malformed tenant and without an installation's secret.
    """
    check_tenant(tenant)
    try:
        return tenant_signing_secret(settings.signing_secret.get_secret_value(), tenant)
    except ValueError:
        raise SetupError(
            f"no secret to derive it from: {settings.data_dir} holds no installation of carillon up (name it "
            "with --data-dir) and CARILLON_SIGNING_SECRET is not set",
            code="signing_secret_missing",
        ) from None
