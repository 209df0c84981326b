"""What children print: all of it in a bounded file, what matters on the terminal."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from api.cli import child_log
from api.cli.child_log import ChildLog


@pytest.fixture
def terminal() -> io.StringIO:
    return io.StringIO()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-12-01T09:00:00.000Z INFO workers.main ready", False),
        ("2026-12-01T09:00:00.000Z WARNING workers.main a WARNING", True),
        ("2026-12-01T09:00:00.000Z ERROR workers.main it broke", True),
        ("2026-12-01T09:00:00.000Z INFO workers.main no ERROR at all", False),
        ("Traceback (most recent call last):", True),
        ("thread panicked at 100 % of", True),
        ("  ", False),
    ],
)
def test_warnings_and_what_is_no_log_line_are_shown(
    tmp_path: Path, terminal: io.StringIO, line: str, shown: bool
) -> None:
    log = ChildLog("api", tmp_path / "log", terminal=terminal)
    log.take(line)
    log.close()
    assert terminal.getvalue() == (f"api | {line}\n" if shown else "")
    assert (tmp_path / "log").read_text() == (f"{line}\n" if line.strip() else "")


def test_of_the_server_only_errors_and_none_that_are_expected(tmp_path: Path, terminal: io.StringIO) -> None:
    log = ChildLog("temporal", tmp_path / "log", show_warnings=False, quiet="not healthy", terminal=terminal)
    for line in ("level=WARN a", "level=ERROR b", "level=ERROR not healthy yet", "Temporal UI: …"):
        log.take(line)
    log.mute()
    log.take("level=ERROR c")
    log.close()
    assert terminal.getvalue() == "temporal | level=ERROR b\n"


def test_a_flood_is_counted(tmp_path: Path, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(child_log.time, "monotonic", lambda: now)
    log = ChildLog("api", tmp_path / "log", terminal=terminal)
    for number in range(1000):
        log.take(f"ERROR {number}")
    assert len(terminal.getvalue().splitlines()) == 20
    now = 11.0
    log.take("ERROR last")
    log.close()
    assert terminal.getvalue().splitlines()[20:] == [
        f"api | 980 more lines in {tmp_path / 'log'}",
        "api | ERROR last",
    ]


def test_the_file_is_bounded(tmp_path: Path, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_log, "_FILE_BYTES", 10_000)
    log = ChildLog("api", tmp_path / "log", terminal=terminal)
    for number in range(1000):
        log.take(f"INFO {number} {'x' * 100}")
    log.close()
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    assert sum(file.stat().st_size for file in files) <= 20_000
    assert "INFO 999" in (tmp_path / "log").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_said_once_and_the_log_goes_on(
    tmp_path: Path, terminal: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor does it keep the child from being followed, or hide why the child was given up."""
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    log = ChildLog("api", path, terminal=terminal)
    for number in range(100):
        log.take(f"INFO {number}")
    log.take("ERROR it broke")
    log.close()
    assert terminal.getvalue().splitlines() == [
        f"api | {path} cannot be written: No space left on device",
        "api | ERROR it broke",
    ]
    assert log.tail()[-1] == "ERROR it broke"
    assert capfd.readouterr() == ("", "")


async def test_lines_without_end_are_cut_and_nothing_is_lost(tmp_path: Path, terminal: io.StringIO) -> None:
    reader = asyncio.StreamReader()
    log = ChildLog("api", tmp_path / "log", terminal=terminal)
    reader.feed_data(b"INFO a\r\nINFO \xff" + b"y" * 300_000)
    reader.feed_data(b"\nINFO without a line break")
    reader.feed_eof()
    await log.follow(reader)
    log.close()
    text = (tmp_path / "log").read_text()
    assert text.count("y") == 300_000
    assert text.splitlines()[0] == "INFO a"
    assert text.splitlines()[-1] == "INFO without a line break"
    assert max(map(len, text.splitlines())) <= 3 * 64 * 1024
