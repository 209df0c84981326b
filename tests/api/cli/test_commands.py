"""The small commands, as a shell sees them."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from api.cli.doctor import Finding, examine, report
from infra.settings import Settings
from infra.temporal.dynamic_config import DYNAMIC_CONFIG
from tests.api.cli.installations import CARILLON, bare_environment


def _run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CARILLON, *arguments],
        env=bare_environment() | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("token", "--tenant", "Acme"), 1, "is no tenant"),
        (("token", "--tenant", "acme", "--ttl", "tomorrow"), 2, "no duration"),
        (("token", "--tenant", "acme", "--data-dir", "/nonexistent"), 1, "carillon up"),
        (("preview", "61 * * * *"), 1, "minute"),
        (("preview", "0 9 * * *", "--timezone", "Europe/Lodon"), 1, "Europe/London"),
        (("up", "--workers", "-1"), 2, "--workers"),
        (("nonsense",), 2, "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes_are_one_message(arguments: tuple[str, ...], status: int, text: str) -> None:
    done = _run(*arguments, COLUMNS="200")
    assert done.returncode == status
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_token_is_the_last_line_and_nothing_else() -> None:
    done = _run("token", "--tenant", "acme", CARILLON_JWT_SECRET="x" * 32)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.count(".") == 2


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("0 9 * * mon-fri", "T09:00:00+"),
        ("@daily", "T00:00:00+"),
        ("PT90S", "interval"),
        ("2099-01-01T00:00:00Z", "2099-01-01T00:00:00Z"),
    ],
)
def test_preview(expression: str, text: str) -> None:
    done = _run("preview", expression, "--timezone", "Europe/London", "--count", "3")
    assert done.returncode == 0, done.stderr
    assert text in done.stdout


async def test_doctor_goes_on_without_a_server_and_says_so(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path,
        temporal_address="127.0.0.1:1",
        database_url=f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}",
    )
    findings = {finding.subject: finding for finding in await examine(settings)}
    assert findings["Temporal server"].state == "missing"
    assert findings["tzdata"].state == "ok"
    assert findings["database schema"].state == "missing"


async def test_doctor_without_the_process_names_what_cannot_be_read(
    temporal_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster: what the server tells is read, the rest named with what is lost without it."""
    monkeypatch.setattr("api.cli.doctor.running_values", lambda port: None)
    findings = {finding.subject: finding for finding in await examine(temporal_settings)}
    assert findings["frontend.WorkerCommandsEnabled"].state == "ok"
    assert findings["matching.numTaskqueueReadPartitions"].found == "1"
    shift = findings["history.timerProcessorMaxTimeShift"]
    assert shift.state == "unknown"
    assert 'history.timerProcessorMaxTimeShift="50ms"' in shift.advice
    assert "whole second" in shift.advice


def test_doctor_breaks_no_name_that_is_to_be_copied() -> None:
    """On a terminal of 80 columns."""
    findings = [
        Finding(value.key, "missing", "not set", f"Set {value.key}={value.value}; without it {value.loss}.")
        for value in DYNAMIC_CONFIG
    ]
    printed = io.StringIO()
    assert report(findings, as_json=False, console=Console(file=printed, width=80)) == 1
    words = printed.getvalue().split()
    for value in DYNAMIC_CONFIG:
        assert f"{value.key}:" in words
        assert f"{value.key}={value.value};" in words


async def test_doctor_compares_the_values_of_a_process(
    temporal_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cli.doctor.running_values", lambda port: {"matching.enableFairness": "false"})
    findings = {finding.subject: finding for finding in await examine(temporal_settings)}
    assert (findings["matching.enableFairness"].state, findings["matching.enableFairness"].found) == (
        "missing",
        "false",
    )
    assert findings["system.enableCancelActivityWorkerCommand"].found == "not set"


@pytest.mark.parametrize(("state", "status"), [("ok", 0), ("note", 0), ("unknown", 0), ("missing", 1)])
def test_only_what_is_missing_fails(state: str, status: int) -> None:
    finding = Finding("x", state, "y")  # type: ignore[arg-type]
    with Console(quiet=True) as console:
        assert report([finding], as_json=False, console=console) == status
