"""The embedded Temporal server: its command line, and waiting until it answers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from infra.temporal.dynamic_config import DYNAMIC_CONFIG
from workflows.contracts.names import SEARCH_ATTRIBUTES

DATABASE_FILE = "temporal.db"


@dataclass(frozen=True)
class EmbeddedServer:
    """One server with its state in ``data_dir``. Its command runs with ``data_dir`` as working directory."""

    binary: Path
    data_dir: Path
    port: int
    ui_port: int | None
    """None: no web UI."""
    durable: bool = False
    """True: SQLite waits for the disk at every commit, so that a power cut loses nothing acknowledged."""
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def command(self) -> tuple[str, ...]:
        """The argument vector. The database is named relative to the working directory."""
        arguments = [str(self.binary), "server", "start-dev"]
        arguments += ["--ip", self.host, "--port", str(self.port)]
        arguments += ["--headless"] if self.ui_port is None else ["--ui-port", str(self.ui_port)]
        arguments += ["--ui-disable-news-fetch", "--db-filename", DATABASE_FILE, "--log-level", "warn"]
        synchronous = "full" if self.durable else "normal"
        for pragma in ("journal_mode=wal", f"synchronous={synchronous}"):
            arguments += ["--sqlite-pragma", pragma]
        for name in SEARCH_ATTRIBUTES:
            arguments += ["--search-attribute", f"{name}=Keyword"]
        for value in DYNAMIC_CONFIG:
            arguments += ["--dynamic-config-value", f"{value.key}={value.value}"]
        return tuple(arguments)


def running_values(port: int, *, processes: Path = Path("/proc")) -> dict[str, str] | None:
    """The dynamic config of this machine's ``start-dev`` server on ``port``, by its command line.

    None where no such process can be seen: another machine, another user's, another system than Linux.
    """
    for directory in processes.glob("[0-9]*"):
        try:
            arguments = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        pairs = list(pairwise(arguments))
        if "start-dev" in arguments and ("--port", str(port)) in pairs:
            values = [value for option, value in pairs if option == "--dynamic-config-value"]
            return dict(value.split("=", 1) for value in values if "=" in value)
    return None
