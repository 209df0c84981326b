"""Metrics in Prometheus' form, and logs of one line an event."""

from __future__ import annotations

import io
import logging
import re
import socket
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.cli.ports import choose_ports
from infra.settings import Settings
from infra.telemetry import Telemetry, configure_logging
from infra.temporal.errors import SetupError


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Puts the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


def _use(telemetry: Telemetry) -> None:
    telemetry.fired(0.012)
    telemetry.fired(-0.001)
    telemetry.attempt_ended("succeeded")
    telemetry.attempt_ended("returned", "stopping")
    telemetry.reaped()
    telemetry.fence_refused()
    telemetry.held(+1)
    telemetry.firing(+1)
    telemetry.firing(-1)
    telemetry.records_waiting(3)
    telemetry.records_dropped(2)
    telemetry.clock_offset(-0.25)


def test_what_workers_count() -> None:
    registry = CollectorRegistry()
    _use(Telemetry.prometheus("test", registry=registry))
    text = generate_latest(registry).decode()
    for line in (
        "carillon_attempt_lateness_milliseconds_count 2.0",
        'carillon_attempt_lateness_milliseconds_bucket{le="20"} 2.0',
        'carillon_attempt_lateness_milliseconds_bucket{le="10"} 1.0',
        'carillon_attempts_total{outcome="succeeded"} 1.0',
        'carillon_attempts_total{outcome="returned"} 1.0',
        'carillon_returns_total{reason="stopping"} 1.0',
        "carillon_reaps_total 1.0",
        "carillon_fences_refused_total 1.0",
        "carillon_held 1.0",
        "carillon_firing 0.0",
        "carillon_records_waiting 3.0",
        "carillon_records_dropped_total 2.0",
        "carillon_clock_offset_seconds -0.25",
    ):
        assert re.search(f"^{re.escape(line)}$", text, re.MULTILINE), line


def test_without_a_meter_nothing_happens() -> None:
    _use(Telemetry())


def test_a_taken_metrics_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(metrics_port=taken.getsockname()[1])
        with pytest.raises(SetupError, match="CARILLON_METRICS_PORT"):
            Telemetry.of(settings, "test-taken")


@pytest.mark.usefixtures("own_logging")
def test_an_event_is_one_line() -> None:
    out = io.StringIO()
    configure_logging("warning", stream=out)
    log = logging.getLogger("carillon.test")
    log.info("not this")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it\nbroke")
    [line] = out.getvalue().splitlines()
    assert re.match(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR carillon\.test it\\nbroke\\nTraceback", line
    )
    assert line.endswith(r"ValueError: two\nlines")


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(SetupError, match="LOUD"):
        configure_logging("LOUD")


def test_metrics_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """``Telemetry.of`` serves the process's registry; here only that the port answers."""
    port = choose_ports("127.0.0.1", {"--metrics": 0})["--metrics"]
    served = Telemetry.of(Settings(metrics_port=port), "test-served")
    served.held(+1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert b"carillon_held" in answer.read()
