"""A PostgreSQL server of the tests' own, started from the binaries of this machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

_PLACES = ("/usr/local/bin", "/usr/lib/postgresql/*/bin")
_SETTINGS = ("fsync=off", "listen_addresses=127.0.0.1", "max_connections=200", "timezone=Asia/Kathmandu")
"""An odd zone, so that nothing relies on the server's being UTC."""


class PostgresServer:
    """A cluster in a directory of its own on a free port of the loopback; can be stopped and started."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self._binaries = binaries
        self._directory = directory
        self._user = _unprivileged(directory)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._run("initdb", "-D", str(directory / "data"), "-U", "carillon", "-A", "trust", "-E", "UTF8")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://carillon@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in _SETTINGS)
        options += f" -c port={self.port} -c unix_socket_directories={self._directory}"
        log = str(self._directory / "log")
        self._run(
            "pg_ctl", "start", "-w", "-t", "30", "-D", str(self._directory / "data"), "-l", log, "-o", options
        )

    def stop(self) -> None:
        """Cut every connection and end the server, by its own process id."""
        pid = int((self._directory / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + 30
        while (self._directory / "data" / "postmaster.pid").exists():
            assert time.monotonic() < deadline, "PostgreSQL does not stop"
            time.sleep(0.01)

    def create_database(self, name: str) -> str:
        """An empty database; returns its URL."""
        with psycopg.connect(self._dsn(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def _dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=carillon dbname=postgres"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            user=self._user,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}"


def find_binaries() -> Path | None:
    """The directory that holds initdb, pg_ctl and postgres, or None."""
    on_path = shutil.which("pg_ctl")
    places = [Path(on_path).parent] if on_path else []
    for pattern in _PLACES:
        places += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    for place in places:
        if all((place / program).exists() for program in ("initdb", "pg_ctl", "postgres")):
            return place
    return None


def _unprivileged(directory: Path) -> str | None:
    """PostgreSQL refuses to run as root: hand the directory to somebody else then."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(directory, user.pw_uid, user.pw_gid)
            return name
    pytest.skip("PostgreSQL does not run as root, and there is no other user to run it as")


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A running server, removed with its data at the end. Skips where PostgreSQL is not installed."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL (initdb, pg_ctl, postgres) is not installed")
    # Not pytest's own directory: another user has to reach it.
    with tempfile.TemporaryDirectory(prefix="carillon-pg-") as directory:
        server = PostgresServer(binaries, Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole session; whoever stops it starts it again."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a database of that server."""
    return postgres_server.url()
