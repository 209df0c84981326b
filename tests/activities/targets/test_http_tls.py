"""TLS is always verified, for the name in the URL, and its failures have a kind of their own."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activities.targets.http import HttpSender
from tests.activities.targets.local_targets import Fired, MakeSender, Names, StartTarget, delivery, send


class Authority:
    """A certificate authority of the test's own, and what it signs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._build(self._name, self._key, ca=True)

    def _build(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        names: tuple[str, ...] = (),
        ca: bool = False,
        expired: bool = False,
        own: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        begin = now - timedelta(days=30)
        end = now - timedelta(days=1) if expired else now + timedelta(days=1)
        alternatives: list[x509.GeneralName] = []
        for name in names:
            literal = name.replace(".", "").isdigit()
            alternatives.append(x509.IPAddress(ip_address(name)) if literal else x509.DNSName(name))
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=ca,
            crl_sign=ca,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if own else self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(key if own else self._key, hashes.SHA256())

    def server(self, *names: str, **flaws: Any) -> ssl.SSLContext:
        """A server's context with a certificate for these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = self._build(subject, key, names=names, **flaws)
        file = self._directory / f"{certificate.serial_number:x}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def trusting(self) -> ssl.SSLContext:
        """A client's context as the system's, but that trusts only this authority."""
        data = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=data)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def tls_sender(make_sender: MakeSender, authority: Authority) -> HttpSender:
    return make_sender(ssl_context=authority.trusting(), lookup=Names(target_test=["127.0.0.1"]))


async def test_the_name_is_kept_for_tls_and_host(
    tls_sender: HttpSender, start_target: StartTarget, authority: Authority
) -> None:
    """The connection goes to the checked address; certificate, SNI and Host speak of the name."""
    target = await start_target(tls=authority.server("target.test"))
    for _ in range(2):
        answer = await send(tls_sender, delivery(f"https://target.test:{target.port}/"))
        assert answer.outcome == "succeeded"
    assert target.names == ["target.test"]
    assert {request["host"] for request in target.requests} == {f"target.test:{target.port}"}
    assert target.connections == 1


@pytest.mark.parametrize(
    ("names", "flaws", "said"),
    [
        pytest.param(("target.test",), {"expired": True}, "expired", id="expired"),
        pytest.param(("target.test",), {"own": True}, "self-signed", id="self-signed"),
        pytest.param(("other.test",), {}, "Hostname mismatch", id="hostname-mismatch"),
        pytest.param(("127.0.0.1",), {}, "Hostname mismatch", id="for-the-address-only"),
    ],
)
async def test_a_bad_certificate(
    tls_sender: HttpSender,
    start_target: StartTarget,
    authority: Authority,
    names: tuple[str, ...],
    flaws: dict[str, bool],
    said: str,
) -> None:
    """Never delivered to; retried, within the job's attempts, since certificates get renewed."""
    target = await start_target(tls=authority.server(*names, **flaws))
    fired = Fired()
    answer = await send(tls_sender, delivery(f"https://target.test:{target.port}/"), fired=fired)
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "tls", True)
    assert answer.error is not None
    assert said.lower() in answer.error.lower()
    assert (answer.written_at, fired.times, target.requests) == (None, 0, [])


async def test_a_public_authority_is_not_this_one(
    make_sender: MakeSender, start_target: StartTarget, authority: Authority
) -> None:
    """Without roots of our own the system's count."""
    target = await start_target(tls=authority.server("target.test"))
    sender = make_sender(ssl_context=None, lookup=Names(target_test=["127.0.0.1"]))
    answer = await send(sender, delivery(f"https://target.test:{target.port}/"))
    assert answer.error_kind == "tls"


async def test_a_server_that_speaks_no_tls(tls_sender: HttpSender, start_target: StartTarget) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example ESMTP\r\n")
        await reader.read(1)

    target = await start_target()
    target.serve = greet  # type: ignore[method-assign]
    answer = await send(tls_sender, delivery(f"https://target.test:{target.port}/"))
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "tls", True)


async def test_a_handshake_that_never_ends(tls_sender: HttpSender, start_target: StartTarget) -> None:
    async def stare(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    target = await start_target()
    target.serve = stare  # type: ignore[method-assign]
    fired = Fired()
    url = f"https://target.test:{target.port}/"
    answer = await send(tls_sender, delivery(url), deadline_s=0.5, fired=fired)
    assert (answer.outcome, answer.written_at, fired.times) == ("timed_out", None, 0)
