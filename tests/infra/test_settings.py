"""Settings as the environment has them: what is meant is taken, what cannot be is refused by its name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from infra.settings import Settings
from tests.api.cli.test_commands import _run


@pytest.mark.parametrize(
    ("text", "meant"),
    [("PT45S", timedelta(seconds=45)), ("45", timedelta(seconds=45)), ("0.5", timedelta(seconds=0.5))],
)
def test_a_duration_is_iso_8601_or_seconds(
    text: str, meant: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARILLON_WORKER_GRACE", text)
    assert Settings().worker_grace == meant


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WORKER_GRACE", "-PT5S"),
        ("LOOK_AHEAD", "-5"),
        ("JWT_LEEWAY", "PT6M"),
        ("DEFAULT_TIMEZONE", "Europe/Londn"),
        ("MAX_JOBS", "-1"),
    ],
)
def test_what_cannot_be_is_refused(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"CARILLON_{name}", text)
    with pytest.raises(ValidationError):
        Settings()


def test_a_command_names_the_variable_that_is_wrong() -> None:
    done = _run("token", "--tenant", "acme", CARILLON_DEFAULT_TIMEZONE="Europe/Londn")
    assert done.returncode == 1
    assert "CARILLON_DEFAULT_TIMEZONE: 'Europe/Londn' is not a time zone" in done.stderr
