"""The data directory of one ``carillon up``: its lock, secrets and addresses."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from infra.settings import Settings
from infra.temporal.errors import SetupError

_LOCK = "lock"
_ADDRESSES = "installation.json"
_SECRETS = "secrets"
_SECRET_NAMES = ("jwt_secret", "signing_secret")
_FORMAT = 1
_NAMESPACE = ("temporal_address", "temporal_namespace")
"""Settings that say which namespace is meant."""


class Installation:
    """One data directory. Nothing is written before :meth:`locked` or :meth:`ensure_secrets`."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def database_url(self) -> str:
        """The SQLite database that stands beside the embedded server."""
        return f"sqlite+aiosqlite:///{self.data_dir / 'carillon.db'}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory and holds it for this process.

        The kernel drops the lock of a process that died, so a stale one is taken over. Raises SetupError
        (``data_dir_in_use``) while another process holds it.
        """
        self._make(self.data_dir)
        self._make(self.logs)
        with (self.data_dir / _LOCK).open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "?"
                raise SetupError(
                    f"{self.data_dir} is in use by another carillon up (process {holder}); "
                    "stop that one, or name another --data-dir",
                    code="data_dir_in_use",
                ) from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def ensure_secrets(self) -> None:
        """Makes each secret of the installation that is not there yet. They stay for good."""
        directory = self.data_dir / _SECRETS
        self._make(self.data_dir)
        self._make(directory)
        for name in _SECRET_NAMES:
            if not (directory / name).exists():
                _write(directory / name, secrets.token_hex(32))

    def secret(self, name: str) -> str | None:
        """A generated secret, None where there is none."""
        try:
            return (self.data_dir / _SECRETS / name).read_text().strip()
        except FileNotFoundError:
            return None

    def write_settings(self, values: Mapping[str, Any], *, listen_port: int, ui_url: str | None) -> None:
        """Records what the other commands need to join: settings by name, as JSON values, never secrets."""
        document = {
            "format": _FORMAT,
            "process": os.getpid(),
            "listen_port": listen_port,
            "ui_url": ui_url,
            "settings": dict(values),
        }
        _write(self.data_dir / _ADDRESSES, json.dumps(document, indent=2) + "\n")

    def write_namespace_id(self, namespace_id: str) -> None:
        """Adds to what :meth:`write_settings` wrote what is known once the server answers."""
        document = self.read()
        document["settings"]["temporal_namespace_id"] = namespace_id
        _write(self.data_dir / _ADDRESSES, json.dumps(document, indent=2) + "\n")

    def read(self) -> dict[str, Any]:
        """What :meth:`write_settings` wrote, empty where nothing was. Raises SetupError if it is damaged."""
        path = self.data_dir / _ADDRESSES
        try:
            document = json.loads(path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            document = None
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise SetupError(
                f"{path} is not of this release; remove it and start carillon up again",
                code="installation_unreadable",
            )
        return document

    @staticmethod
    def _make(directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"cannot make the directory {directory}: {error.strerror}; name another --data-dir",
                code="data_dir_unusable",
            ) from error


def settings_for(data_dir: Path | None = None, **fixed: Any) -> Settings:
    """The settings of a process: ``fixed``, else the environment, else the installation, else defaults.

    ``data_dir`` None takes the one that the environment names (``CARILLON_DATA_DIR``), else ``.carillon``.
    """
    given = Settings() if data_dir is None else Settings(data_dir=data_dir)
    installation = Installation(given.data_dir)
    found: dict[str, Any] = dict(installation.read().get("settings", {}))
    for name in _SECRET_NAMES:
        secret = installation.secret(name)
        if secret is not None:
            found[name] = SecretStr(secret)
    chosen = {name: getattr(given, name) for name in given.model_fields_set} | fixed
    if any(chosen.get(name, found.get(name)) != found.get(name) for name in _NAMESPACE):
        found.pop("temporal_namespace_id", None)
    absent = {name: value for name, value in found.items() if name not in given.model_fields_set}
    return Settings(**{**absent, **fixed, "data_dir": installation.data_dir})


def _write(path: Path, text: str) -> None:
    """Writes a file that only its owner reads, whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
