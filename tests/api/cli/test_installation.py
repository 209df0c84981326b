"""The data directory: secrets, lock, and what other commands find in it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from infra.installation import Installation, settings_for
from infra.temporal.errors import SetupError


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("CARILLON_"):
            monkeypatch.delenv(name)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "data")


def test_secrets_are_private_and_stay(installation: Installation) -> None:
    installation.ensure_secrets()
    first = [installation.secret(name) for name in ("jwt_secret", "signing_secret")]
    installation.ensure_secrets()
    assert [installation.secret(name) for name in ("jwt_secret", "signing_secret")] == first
    assert all(secret is not None and len(secret) >= 32 for secret in first)
    assert first[0] != first[1]
    for path in (installation.data_dir / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(installation.data_dir.stat().st_mode) == 0o700


def test_two_cannot_hold_one_directory(installation: Installation) -> None:
    with (
        installation.locked(),
        pytest.raises(SetupError, match=f"process {os.getpid()}.*--data-dir") as caught,
        Installation(installation.data_dir).locked(),
    ):
        pass
    assert caught.value.code == "data_dir_in_use"
    with installation.locked():
        pass


def test_the_lock_of_a_dead_process_is_taken_over(installation: Installation) -> None:
    """Killed without a chance to tidy up, it leaves its file behind and nothing else."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time, pathlib; from infra.installation import Installation\n"
            "with Installation(pathlib.Path(sys.argv[1])).locked(): print('held', flush=True); time.sleep(9)",
            str(installation.data_dir),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    with holder.stdout as output:
        assert output.readline() == "held\n"
        with pytest.raises(SetupError, match=f"process {holder.pid}"), installation.locked():
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with installation.locked():
        assert (installation.data_dir / "lock").read_text() == f"{os.getpid()}\n"


def test_settings_come_from_environment_then_directory_then_defaults(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.ensure_secrets()
    recorded = {"temporal_address": "127.0.0.1:1", "api_port": 2, "allow_networks": ["127.0.0.0/8"]}
    installation.write_settings(recorded, listen_port=3, ui_url=None)
    monkeypatch.setenv("CARILLON_API_PORT", "4")
    settings = settings_for(installation.data_dir)
    assert settings.temporal_address == "127.0.0.1:1"
    assert settings.api_port == 4
    assert [str(network) for network in settings.allow_networks] == ["127.0.0.0/8"]
    assert settings.jwt_secret.get_secret_value() == installation.secret("jwt_secret")
    assert settings.temporal_namespace == "default"
    assert settings_for(installation.data_dir, api_port=5).api_port == 5


@pytest.mark.parametrize(
    ("chosen", "known"),
    [
        ({}, "0b5e"),
        ({"TEMPORAL_ADDRESS": "127.0.0.1:1", "TEMPORAL_NAMESPACE": "default"}, "0b5e"),
        ({"TEMPORAL_ADDRESS": "127.0.0.1:2"}, None),
        ({"TEMPORAL_NAMESPACE": "jobs"}, None),
        ({"TEMPORAL_ADDRESS": "127.0.0.1:2", "TEMPORAL_NAMESPACE_ID": "5a1f"}, "5a1f"),
    ],
    ids=["joined", "named-again", "another-address", "another-namespace", "all-of-another"],
)
def test_the_id_of_the_namespace_is_that_of_the_directorys_own(
    chosen: dict[str, str], known: str | None, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.ensure_secrets()
    recorded = {"temporal_address": "127.0.0.1:1", "temporal_namespace": "default"}
    installation.write_settings(recorded, listen_port=3, ui_url=None)
    installation.write_namespace_id("0b5e")
    for name, text in chosen.items():
        monkeypatch.setenv(f"CARILLON_{name}", text)
    settings = settings_for(installation.data_dir)
    assert settings.temporal_namespace_id == known
    assert settings.temporal_address == chosen.get("TEMPORAL_ADDRESS", "127.0.0.1:1")


def test_the_directory_may_come_from_the_environment(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.ensure_secrets()
    monkeypatch.setenv("CARILLON_DATA_DIR", str(installation.data_dir))
    assert settings_for().jwt_secret.get_secret_value() == installation.secret("jwt_secret")


def test_no_secret_without_an_installation(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "none")
    assert settings.jwt_secret.get_secret_value() == ""
    assert settings.signing_secret.get_secret_value() == ""
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}'])
def test_a_damaged_file_is_named(installation: Installation, text: str) -> None:
    installation.ensure_secrets()
    path = installation.data_dir / "installation.json"
    path.write_text(text)
    with pytest.raises(SetupError, match=str(path)):
        settings_for(installation.data_dir)
