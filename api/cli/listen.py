"""``carillon listen``: a small receiver for the first five minutes, which shows and verifies deliveries."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from rich.console import Console
from rich.markup import escape
from standardwebhooks import Webhook, WebhookVerificationError

from infra.settings import Settings
from infra.signing import tenant_signing_secret
from infra.temporal.errors import SetupError
from workflows.contracts.incident import INSTALLATION
from workflows.contracts.names import INCIDENT_PREFIX, parse_key

_BACKLOG = 4096
_BODY_BYTES = 16 * 1024 * 1024
_LATE_IN_MS = 60_000
"""From here on lateness is told in hours, minutes and seconds: a backfilled run is late by months."""
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Seen:
    """One delivery as it arrived."""

    at: datetime
    job: str
    scheduled_time: str
    lateness_ms: int | None
    """From the scheduled time to the arrival of the request's head; None where that cannot be told.

    For a retry or a spread job it includes the wait that is meant.
    """
    attempt: str
    delivery: str
    verdict: str
    """``ok``, ``BAD``, ``none`` (not signed) or ``?`` (no secret to verify with)."""
    path: str
    body: str
    incident: str = ""
    """Of a message about an incident: what it is, such as ``incident.opened dead_letter``."""

    def line(self) -> str:
        if self.incident:
            return (
                f"{self.at:%H:%M:%S}.{self.at.microsecond // 1000:03d}  {self.job}  {self.path}  "
                f"{self.incident}  signature {self.verdict}  {self.body}"
            )
        return (
            f"{self.at:%H:%M:%S}.{self.at.microsecond // 1000:03d}  {self.job}  {self.path}  "
            f"scheduled {self.scheduled_time}  {self._late()}  attempt {self.attempt}/{self.delivery}  "
            f"signature {self.verdict}  {self.body}"
        )

    def _late(self) -> str:
        if self.lateness_ms is None:
            return "?"
        if abs(self.lateness_ms) < _LATE_IN_MS:
            return f"{self.lateness_ms:+d} ms"
        sign = "-" if self.lateness_ms < 0 else "+"
        return f"{sign}{timedelta(seconds=abs(self.lateness_ms) // 1000)}"


def seen(headers: Mapping[str, str], path: str, body: bytes, *, at: datetime, secret: str) -> Seen:
    """Reads and verifies a delivery. ``secret`` is the installation's; "" verifies nothing."""
    scheduled = headers.get("carillon-scheduled-time", "?")
    text = body.decode(errors="replace")
    incident = _incident(headers, body)
    if incident is not None:
        text = str(incident.get("detail", ""))
    text = " ".join(text.split())
    return Seen(
        at=at,
        job=headers.get("carillon-job", "?") if incident is None else str(incident.get("subject", "?")),
        scheduled_time=scheduled,
        lateness_ms=_lateness(scheduled, at),
        attempt=headers.get("carillon-attempt", "?"),
        delivery=headers.get("carillon-delivery", "?"),
        verdict=_verdict(headers, body, secret),
        path=path,
        body=text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…",
        incident="" if incident is None else f"{incident.get('type', '?')} {incident.get('kind', '?')}",
    )


def _incident(headers: Mapping[str, str], body: bytes) -> dict[str, Any] | None:
    """The message about an incident; None for a delivery, and for what cannot be read."""
    if not headers.get("webhook-id", "").startswith(INCIDENT_PREFIX):
        return None
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _lateness(scheduled: str, at: datetime) -> int | None:
    try:
        return round((at - datetime.fromisoformat(scheduled.replace("Z", "+00:00"))).total_seconds() * 1000)
    except (ValueError, TypeError):
        return None


def _verdict(headers: Mapping[str, str], body: bytes, secret: str) -> str:
    if "webhook-signature" not in headers:
        return "none"
    if not secret:
        return "?"
    try:
        tenant = _tenant(headers.get("webhook-id", ""), body)
        Webhook(tenant_signing_secret(secret, tenant)).verify(body, dict(headers), json_parse=False)
    except (WebhookVerificationError, ValueError):
        return "BAD"
    return "ok"


def _tenant(message_id: str, body: bytes) -> str:
    """Whose secret signs a message: a delivery's id names the tenant, an incident's body does.

    Raises ValueError for a message that is neither.
    """
    if not message_id.startswith(INCIDENT_PREFIX):
        return parse_key(message_id)[0]
    document = json.loads(body)
    tenant = document.get("tenant", "") if isinstance(document, dict) else ""
    return INSTALLATION if tenant is None else str(tenant)


def application(settings: Settings, console: Console, status: int) -> web.Application:
    """Answers every request with ``status`` and prints one line for each."""
    secret = settings.signing_secret.get_secret_value()
    colours = {"ok": "green", "BAD": "bold red"}

    async def receive(request: web.Request) -> web.Response:
        at = datetime.now(UTC)  # before the body: what is late is the request
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        delivery = seen(headers, request.path, body, at=at, secret=secret)
        colour = colours.get(delivery.verdict, "yellow")
        line = escape(delivery.line())
        shown = f"signature {delivery.verdict}"
        console.print(line.replace(shown, f"[{colour}]{shown}[/]", 1), soft_wrap=True)
        return web.Response(status=status, text="ok\n" if status < 300 else "")

    app = web.Application(client_max_size=_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", receive)
    return app


async def listen(settings: Settings, *, host: str, port: int, status: int) -> int:
    """Receives until Ctrl-C; the exit status. Raises SetupError (``port_taken``)."""
    console = Console(highlight=False)
    runner = web.AppRunner(application(settings, console, status), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
        except OSError as error:
            raise SetupError(
                f"port {port} (--port) on {host} cannot be used: {error.strerror}; stop what uses it, or "
                "name another here and with carillon up --listen-port",
                code="port_taken",
            ) from error
        address = runner.addresses[0]
        console.print(f"Listening at http://{address[0]}:{address[1]}/ and answering {status}; Ctrl-C stops.")
        if not settings.signing_secret.get_secret_value():
            console.print(
                f"{settings.data_dir} holds no installation: signatures cannot be verified (--data-dir).",
                style="yellow",
            )
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        sys.stdout.flush()
        await stop.wait()
    finally:
        await runner.cleanup()
    return 0
