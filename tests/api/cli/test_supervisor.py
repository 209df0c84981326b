"""Children are started again at a bounded rate, given up, and stopped whatever they do."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from api.cli.supervisor import ChildGaveUp, ChildSpec, RestartRule, Supervisor
from tests.api.cli.installations import alive, until
from tests.stopwatch import Stopwatch

RULE = RestartRule(first=0.01, longest=0.02, deaths_at_start=3, deaths=5)


def _spec(tmp_path: Path, code: str, *, name: str = "child", stop_within: float = 5) -> ChildSpec:
    return ChildSpec(
        name, (sys.executable, "-I", "-S", "-c", code), tmp_path / f"{name}.log", stop_within=stop_within
    )


async def _written(path: Path, text: str) -> None:
    await until(lambda: path.exists() and text in path.read_text())


@pytest.mark.parametrize(("was_up", "deaths"), [(False, 3), (True, 5)], ids=["never-up", "was-up"])
async def test_a_child_that_keeps_dying_is_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], was_up: bool, deaths: int
) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append, RULE)
    [child] = supervisor.start(_spec(tmp_path, "print('no luck'); raise SystemExit(7)"), stop_turn=0)
    child.was_up = was_up
    cause = await supervisor.failure()
    assert isinstance(cause, ChildGaveUp)
    assert f"child ended with status 7, {deaths} times in a row" in str(cause)
    assert "no luck" in str(cause)
    assert len(said) == deaths - 1
    await supervisor.stop()
    assert "child | no luck" in capfd.readouterr().err


def test_waits_double_up_to_a_bound_and_start_anew_once_settled() -> None:
    rule = RestartRule(first=0.2, longest=5.0)
    assert [rule.wait(deaths) for deaths in (1, 2, 3, 4, 5, 6, 7, 100)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5]


async def test_a_child_that_lived_long_enough_is_never_given_up(tmp_path: Path) -> None:
    supervisor = Supervisor(
        lambda _: None, RestartRule(first=0.01, longest=0.01, settled_after=0.0, deaths=2)
    )
    [child] = supervisor.start(_spec(tmp_path, "print('x')"), stop_turn=0)
    await until(lambda: child.restarts >= 6)
    assert child.task is not None
    assert not child.task.done()
    await supervisor.stop()


async def test_turns_stop_one_after_the_other(tmp_path: Path) -> None:
    """Each child notes when it ends; one of a later turn ends after those of earlier ones."""
    ends = tmp_path / "ends"
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "  time.sleep({wait}); open({ends!r}, 'a').write('{name} '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(60)"
    )
    supervisor = Supervisor(lambda _: None, RULE)
    for name, turn, wait in (("server", 2, 0), ("worker", 1, 0.1), ("api", 0, 0.2)):
        source = code.format(wait=wait, ends=str(ends), name=name)
        supervisor.start(_spec(tmp_path, source, name=name), stop_turn=turn)
    for name in ("server", "worker", "api"):
        await _written(tmp_path / f"{name}.log", "up")
    await supervisor.stop()
    assert ends.read_text().split() == ["api", "worker", "server"]


async def test_one_that_ignores_the_request_is_killed_with_its_group(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "inner = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)'])\n"
        "print('inner', inner.pid, 'up', flush=True); time.sleep(60)"
    )
    said: list[str] = []
    supervisor = Supervisor(said.append, RULE)
    supervisor.start(_spec(tmp_path, code, stop_within=0.2), stop_turn=0)
    await _written(tmp_path / "child.log", "up")
    inner = int((tmp_path / "child.log").read_text().split()[1])
    began = time.monotonic()
    with Stopwatch() as stopping:
        await supervisor.stop()
    assert time.monotonic() - began >= 0.2
    assert stopping.seconds < 5
    assert said == ["child did not stop within 0 s and was killed"]
    await until(lambda: not alive(inner))
