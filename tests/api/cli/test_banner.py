"""What ``carillon up`` prints can be pasted as it stands."""

from __future__ import annotations

import io
import json
import re
import shlex

import pytest

from api.cli.banner import Ready, print_ready

READY = Ready(
    api_url="http://127.0.0.1:8080",
    ui_url="http://127.0.0.1:8233",
    temporal_address="127.0.0.1:7233",
    data_dir="/a/directory/with/[brackets] and a name that is longer than any terminal is wide/.carillon",
    logs="/logs",
    workers=1,
    token="x" * 400,
    listen_url="http://127.0.0.1:8090",
    listen_command="carillon listen",
    seconds=1.2,
)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("out", [io.StringIO(), _Terminal()], ids=["file", "terminal"])
def test_the_command_is_last_whole_and_alone(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not wrapped and not coloured, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    print_ready(READY, out)
    text = out.getvalue()
    assert text.count("curl") == 1
    command = text[text.index("curl") :]
    assert "\x1b" not in command
    assert all(line.endswith(" \\") for line in command.splitlines()[:-1])
    arguments = shlex.split(command)
    assert arguments[arguments.index("-H") + 1] == f"Authorization: Bearer {READY.token}"
    assert json.loads(arguments[-1])["schedule"] == {"every": "PT2S"}
    assert re.search(r"http://127\.0\.0\.1:8080/docs", text)
    assert "[brackets]" in re.sub(r"\s|│", "", text)


def test_without_workers_it_says_how_to_start_one() -> None:
    out = io.StringIO()
    print_ready(Ready(**{**vars(READY), "workers": 0}), out)
    assert "carillon worker" in out.getvalue()
