"""``carillon signing-secret``: a target verifies with it what a worker signs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from api.cli.signing_secret import signing_secret
from infra.settings import Settings
from infra.signing import signature, tenant_signing_secret
from infra.temporal.errors import SetupError
from tests.api.cli.test_commands import _run

INSTALLATION = "an-installation-secret-of-32-bytes-or-more"


def test_a_stock_library_verifies_with_what_is_printed() -> None:
    printed = _run("signing-secret", "--tenant", "acme", CARILLON_SIGNING_SECRET=INSTALLATION)
    assert printed.returncode == 0, printed.stderr
    now, body = datetime.now(UTC), b'{"a": 1}'
    signed = signature(
        [tenant_signing_secret(INSTALLATION, "acme")], message_id="acme/job:x", at=now, body=body
    )
    headers = {
        "webhook-id": "acme/job:x",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signed,
    }
    assert Webhook(printed.stdout.strip()).verify(body, headers) == {"a": 1}


@pytest.mark.parametrize(
    ("secret", "tenant", "code"),
    [(INSTALLATION, "Acme", "tenant_malformed"), ("", "acme", "signing_secret_missing")],
    ids=["tenant", "no secret"],
)
def test_refused(secret: str, tenant: str, code: str) -> None:
    with pytest.raises(SetupError) as caught:
        signing_secret(Settings(signing_secret=secret), tenant)
    assert caught.value.code == code
