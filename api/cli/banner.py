"""What ``carillon up`` ends its start with: where things are, and one command that makes a job."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Ready:
    """What is running. ``workers`` 0: somebody else starts them."""

    api_url: str
    ui_url: str
    temporal_address: str
    data_dir: str
    logs: str
    workers: int
    token: str
    listen_url: str
    listen_command: str
    seconds: float


def print_ready(ready: Ready, out: TextIO) -> None:
    """Prints the summary and, last, the command. Nothing may be printed after it."""
    console = Console(file=out, highlight=False)
    rows = [
        ("API", f"{ready.api_url}/docs"),
        ("Temporal UI", ready.ui_url),
        ("Temporal", ready.temporal_address),
        ("Workers", str(ready.workers) if ready.workers else "none (carillon worker starts one)"),
        ("Data", ready.data_dir),
        ("Logs", ready.logs),
    ]
    if console.is_terminal:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, text in rows:
            table.add_row(name, Text(text))
        title = f"Carillon is running [dim](ready in {ready.seconds:.1f} s)[/dim]"
        console.print(Panel(table, title=title, title_align="left", border_style="green", expand=False))
    else:
        out.write(f"Carillon is running (ready in {ready.seconds:.1f} s)\n")
        for name, text in rows:
            out.write(f"  {name:<12} {text}\n")
    # Written as it is from here on: a console would wrap it, and a wrapped command cannot be pasted.
    out.write(f"\nStop with Ctrl-C. Token of tenant demo for a day:\n{ready.token}\n")
    out.write(f"\nSee deliveries, in a second terminal:\n{ready.listen_command}\n")
    out.write(f"\nCreate a job, every 2 seconds:\n{create_command(ready)}\n")
    out.flush()


def create_command(ready: Ready) -> str:
    """A curl command over several lines, one paste."""
    job = {
        "description": "Says hello every two seconds",
        "schedule": {"every": "PT2S"},
        "target": {"type": "http", "url": f"{ready.listen_url}/hello", "body": {"hello": "world"}},
    }
    return " \\\n  ".join(
        (
            f"curl -X POST {ready.api_url}/v1/jobs",
            f"-H {shlex.quote('Authorization: Bearer ' + ready.token)}",
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(json.dumps(job))}",
        )
    )
