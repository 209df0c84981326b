"""Metrics and logs of a process."""

from __future__ import annotations

import logging
import sys
import time
from typing import Self, TextIO

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server

from infra.callback_token import redact
from infra.settings import Settings
from infra.temporal.errors import SetupError

_LATENESS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 15_000, 60_000, 300_000, 3_600_000]


class Telemetry:
    """What a worker counts. Labels are few and bounded: never a tenant, a job or a key."""

    def __init__(self, meter: Meter | None = None) -> None:
        """Without a meter it counts nothing; for tests and for tools."""
        meter = meter if meter is not None else NoOpMeter("carillon")
        self._lateness = meter.create_histogram(
            "carillon.attempt.lateness",
            unit="ms",
            description="From the instant an attempt is due to its request being written",
            explicit_bucket_boundaries_advisory=_LATENESS_MS,
        )
        self._attempts = meter.create_counter(
            "carillon.attempts", description="Attempts by what they came to"
        )
        self._returns = meter.create_counter("carillon.returns", description="Attempts given back, by reason")
        self._reaps = meter.create_counter(
            "carillon.reaps",
            description="Attempts taken over after another worker lost their lease in mid-run",
        )
        self._overruns = meter.create_counter(
            "carillon.overruns", description="Runs still active when they had been in the way for too long"
        )
        self._fences = meter.create_counter(
            "carillon.fences.refused", description="Runs not fired because the server said they are not ours"
        )
        self._held = meter.create_up_down_counter("carillon.held", description="Runs held until they are due")
        self._firing = meter.create_up_down_counter("carillon.firing", description="Runs being fired")
        self._waiting = meter.create_gauge(
            "carillon.records.waiting", description="Records of this process that are not in the database yet"
        )
        self._dropped = meter.create_counter(
            "carillon.records.dropped", description="Records merged or left to the workflow for want of space"
        )
        self._notices = meter.create_counter(
            "carillon.incident.notices",
            description="Messages on incidents, by kind of incident and by what became of them",
        )
        self._offset = meter.create_gauge(
            "carillon.clock.offset", unit="s", description="This machine's clock less the Temporal server's"
        )

    @classmethod
    def prometheus(cls, service: str, *, registry: CollectorRegistry = REGISTRY) -> Self:
        """Collects into a Prometheus registry; once a process for each registry."""
        reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
        provider = MeterProvider([reader], Resource.create({"service.name": service}), shutdown_on_exit=False)
        return cls(provider.get_meter("carillon"))

    @classmethod
    def of(cls, settings: Settings, service: str) -> Self:
        """Collects, and serves ``/metrics`` on the configured port if there is one.

        Raises SetupError (``port_taken``) when the port cannot be had.
        """
        telemetry = cls.prometheus(service)
        if settings.metrics_port is not None:
            try:
                start_http_server(settings.metrics_port, addr=settings.metrics_host)
            except OSError as error:
                raise SetupError(
                    f"metrics cannot be served at {settings.metrics_host}:{settings.metrics_port}: "
                    f"{error.strerror}; set CARILLON_METRICS_PORT to another port or unset it",
                    code="port_taken",
                ) from error
        return telemetry

    def fired(self, lateness_s: float) -> None:
        """A request was handed to the socket, so many seconds after it was due."""
        self._lateness.record(max(0.0, lateness_s * 1000))

    def attempt_ended(self, outcome: str, reason: str | None = None) -> None:
        """``outcome`` as in the attempt's report; a returned one is counted by its reason as well."""
        self._attempts.add(1, {"outcome": outcome})
        if outcome == "returned":
            self._returns.add(1, {"reason": reason or "unknown"})

    def reaped(self) -> None:
        self._reaps.add(1)

    def overran(self) -> None:
        self._overruns.add(1)

    def fence_refused(self) -> None:
        self._fences.add(1)

    def held(self, change: int) -> None:
        self._held.add(change)

    def firing(self, change: int) -> None:
        self._firing.add(change)

    def records_waiting(self, count: int) -> None:
        self._waiting.set(count)

    def records_dropped(self, count: int) -> None:
        self._dropped.add(count)

    def incident_told(self, kind: str, notice: str) -> None:
        """``notice`` as in the incident's row; a message that is tried again is not counted yet."""
        self._notices.add(1, {"kind": kind, "notice": notice})

    def clock_offset(self, seconds: float) -> None:
        """Positive when this machine's clock is ahead."""
        self._offset.set(seconds)


class _OneLine(logging.Formatter):
    """``2026-12-01T09:00:00.123Z WARNING carillon.worker message``; line breaks are written as ``\\n``, and
    callback tokens are left out, whoever logs them."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record)).replace("\r", "\\r").replace("\n", "\\n")


def configure_logging(level: str, *, stream: TextIO | None = None) -> None:
    """Sends the log of this process to ``stream`` (standard error). Raises SetupError for no such level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SetupError(
            f"CARILLON_LOG_LEVEL is {level!r}; take DEBUG, INFO, WARNING or ERROR", code="log_level_unknown"
        )
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_OneLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    logging.getLogger("alembic").setLevel(max(number, logging.WARNING))  # it tells of every plugin it loads
    logging.captureWarnings(True)
