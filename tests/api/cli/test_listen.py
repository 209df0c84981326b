"""``carillon listen`` reads and verifies what workers send."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from rich.console import Console

from api.cli.listen import application, listen, seen
from infra.settings import Settings
from infra.signing import signature, tenant_signing_secret
from infra.temporal.errors import SetupError

SECRET = "an-installation-secret-of-32-bytes-or-more"
KEY = "acme/report:2026-12-01T09:00:00Z"


def _headers(
    body: bytes, *, secret: str = SECRET, key: str = KEY, at: datetime | None = None
) -> dict[str, str]:
    at = at or datetime.now(UTC)
    return {
        "webhook-id": key,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature(
            [tenant_signing_secret(secret, "acme")], message_id=key, at=at, body=body
        ),
        "carillon-job": "report",
        "carillon-scheduled-time": "2026-12-01T09:00:00Z",
        "carillon-attempt": "2",
        "carillon-delivery": "3",
    }


BODY = b'{"a": [1]}'
INCIDENT = b'{"tenant": "acme"}'
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "body", "secret", "verdict"),
    [
        (_headers(BODY), BODY, SECRET, "ok"),
        (_headers(b""), b"", SECRET, "ok"),
        (_headers(b"no json"), b"no json", SECRET, "ok"),
        (_headers(INCIDENT, key="inc_1-recovered"), INCIDENT, SECRET, "ok"),
        (_headers(b'{"tenant": null}', key="inc_1"), b'{"tenant": null}', SECRET, "BAD"),
        (_headers(b"[]", key="inc_1"), b"[]", SECRET, "BAD"),
        (_headers(BODY), BODY + b" ", SECRET, "BAD"),
        (_headers(BODY, secret="another secret"), BODY, SECRET, "BAD"),
        (_headers(BODY) | {"webhook-id": "other/report:x"}, BODY, SECRET, "BAD"),
        (_headers(BODY) | {"webhook-id": "no key"}, BODY, SECRET, "BAD"),
        (_headers(BODY, at=LONG_AGO), BODY, SECRET, "BAD"),
        (_headers(BODY) | {"webhook-signature": "nonsense"}, BODY, SECRET, "BAD"),
        (_headers(BODY), b"\xff", SECRET, "BAD"),
        (_headers(BODY), BODY, "", "?"),
        ({}, BODY, SECRET, "none"),
    ],
    ids=[
        "signed", "signed-empty", "signed-no-json", "incident", "of-another", "no-object", "altered",
        "another-secret", "another-tenant",
        "no-key", "old", "nonsense", "no-text", "no-secret-here", "unsigned",
    ],
)  # fmt: skip
def test_verdicts(headers: dict[str, str], body: bytes, secret: str, verdict: str) -> None:
    assert seen(headers, "/", body, at=datetime.now(UTC), secret=secret).verdict == verdict


def test_the_line_has_job_time_lateness_attempt_and_delivery() -> None:
    at = datetime(2026, 12, 1, 9, 0, 0, 12_000, tzinfo=UTC)
    line = seen(_headers(BODY), "/hello", BODY, at=at, secret=SECRET).line()
    for part in ("09:00:00.012", "report", "2026-12-01T09:00:00Z", "+12 ms", "2/3", '{"a": [1]}', "/hello"):
        assert part in line


def test_a_message_about_an_incident_is_told_as_one() -> None:
    told = {
        "type": "incident.opened",
        "kind": "missed",
        "subject": "report",
        "detail": "[3] missed",
        "count": 1,
    }
    headers = {name: value for name, value in _headers(b"", key="inc_1").items() if "carillon" not in name}
    at = datetime(2026, 12, 1, 9, tzinfo=UTC)
    line = seen(headers, "/alerts", json.dumps(told).encode(), at=at, secret="").line()
    assert line == "09:00:00.000  report  /alerts  incident.opened missed  signature ?  [3] missed"


@pytest.mark.parametrize("text", ["?", "yesterday", "2026-12-01T09:00:00"])
def test_a_time_that_is_none_has_no_lateness(text: str) -> None:
    headers = {"carillon-scheduled-time": text}
    assert seen(headers, "/", b"", at=datetime.now(UTC), secret="").lateness_ms is None


async def test_one_line_a_delivery_whatever_its_text(tmp_path: Path) -> None:
    """Markup and line breaks of a body stay text on one line."""
    out = io.StringIO()
    app = application(Settings(signing_secret=SECRET), Console(file=out, width=40), 503)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        body = json.dumps({"text": "[bold]x[/bold] [/]"}, indent=2).encode()
        async with httpx.AsyncClient() as client:
            address = f"http://127.0.0.1:{runner.addresses[0][1]}/a/b"
            answer = await client.post(address, content=body, headers=_headers(body))
        assert answer.status_code == 503
    finally:
        await runner.cleanup()
    [line] = out.getvalue().splitlines()
    assert "[bold]x[/bold] [/]" in line
    assert "signature ok" in line


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        with pytest.raises(SetupError, match=rf"port {port} \(--port\)"):
            await listen(Settings(data_dir=tmp_path), host="127.0.0.1", port=port, status=200)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("late", "shown"),
    [
        (timedelta(milliseconds=-5), "-5 ms"),
        (timedelta(milliseconds=59_999), "+59999 ms"),
        (timedelta(seconds=75, milliseconds=900), "+0:01:15"),
        (timedelta(days=332, hours=16), "+332 days, 16:00:00"),
        (timedelta(hours=-2), "-2:00:00"),
    ],
    ids=str,
)
def test_lateness_has_a_sign_and_a_readable_unit(late: timedelta, shown: str) -> None:
    at = datetime(2026, 12, 1, 9, tzinfo=UTC) + late
    assert f"  {shown}  " in seen(_headers(BODY), "/", BODY, at=at, secret=SECRET).line()
