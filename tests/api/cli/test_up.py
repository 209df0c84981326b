"""``carillon up`` from outside: a real server, API and workers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from api.cli.ports import choose_ports
from infra.installation import settings_for
from infra.temporal.client import connect
from tests.api.cli.installations import CARILLON, Up, alive, bare_environment, eventually, running
from tests.stopwatch import Stopwatch


def test_it_ends_its_start_with_a_command_and_stops_in_order_on_ctrl_c(tmp_path: Path) -> None:
    with running(tmp_path / "data") as up:
        assert up.api_answers()
        text = up.text()
        before, found, command = text.partition("curl ")
        assert found
        assert "curl" not in before
        arguments = shlex.split(found + command)  # one command: nothing comes after it
        assert arguments[:3] == ["curl", "-X", "POST"]
        job = json.loads(arguments[-1])
        assert "id" not in job
        assert job["target"]["url"].startswith("http://127.0.0.1:8090/")
        assert "/docs" in before

        children = up.children()
        api, worker, server = (up.child(part) for part in (" api ", " worker ", " start-dev "))
        assert set(children) == {api, worker, server}
        assert [pid for pid, line in children.items() if "worker" in line] == [worker]
        for pid in children:
            assert os.getpgid(pid) == pid
            assert "NO_COLOR=1" in Path(f"/proc/{pid}/environ").read_text().split("\0")

        up.process.send_signal(signal.SIGINT)
        order: list[int] = []
        until = time.monotonic() + 60
        while up.process.poll() is None and time.monotonic() < until:
            order += [pid for pid in (api, worker, server) if pid not in order and not alive(pid)]
            time.sleep(0.002)
        assert up.process.poll() == 0, up.text()
        assert [pid for pid in (api, worker, server) if alive(pid)] == []
        order += [pid for pid in (api, worker, server) if pid not in order]
        assert order == [api, worker, server]


async def test_state_and_secrets_survive_and_one_directory_serves_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, "--workers", "0") as up:
        client = await connect(settings_for(data))
        await client.start_workflow("never-run", id="remembered", task_queue="nobody")
        token = _token(data)

        second = Up(data, out=tmp_path / "second.txt")
        assert second.process.wait(20) == 1
        assert f"process {up.process.pid}" in second.text()

        with running(tmp_path / "other", "--workers", "0") as other:
            assert other.api_answers()
            assert up.api_answers()
            assert _token(tmp_path / "other").split(".")[2] != token.split(".")[2]
        assert up.stop(signal.SIGTERM) == 0
    secret = settings_for(data).jwt_secret
    with running(data, "--workers", "0", "--durable") as up:
        assert settings_for(data).jwt_secret == secret
        client = await connect(settings_for(data))
        described = await client.get_workflow_handle("remembered").describe()
        assert described.workflow_type == "never-run"
        assert "synchronous=full" in up.children()[up.child("start-dev")]


def test_children_that_die_are_started_again(tmp_path: Path) -> None:
    with running(tmp_path / "data") as up:
        for part in (" worker ", " api ", " start-dev "):
            pid = up.child(part)
            os.kill(pid, signal.SIGKILL)
            eventually(lambda pid=pid: not alive(pid), "the death")
            eventually(
                lambda part=part: any(part in line for line in up.children().values()), f"a new {part}"
            )
        eventually(up.api_answers, "the API with its server back")
        assert up.stop() == 0


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path / "data") as up:
        children = list(up.children())
        assert len(children) == 3
        up.process.kill()
        up.process.wait()
        eventually(lambda: not any(alive(pid) for pid in children), "the end of the children")


def test_a_taken_port_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = Up(tmp_path / "data", "--temporal-port", str(port))
        assert up.process.wait(20) == 1
    assert f"port {port} (--temporal-port)" in up.text()
    assert not (up.data_dir / "temporal.db").exists()


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"CARILLON_TEMPORAL_BIN": "/nowhere/temporal"}, ["CARILLON_TEMPORAL_BIN", "/nowhere/temporal"]),
        ({"CARILLON_LOG_LEVEL": "LOUD"}, ["api ended with status 1", "LOUD"]),
        ({"CARILLON_MAX_HELD_RUNS": "none"}, ["CARILLON_MAX_HELD_RUNS", "integer"]),
    ],
    ids=["no-binary", "a-child-that-cannot-start", "setting-malformed"],
)
def test_what_cannot_start_says_why(tmp_path: Path, environment: dict[str, str], words: list[str]) -> None:
    up = Up(tmp_path / "data", **environment)
    assert up.process.wait(30) == 1
    assert [word for word in words if word not in up.text()] == []


def test_a_second_ctrl_c_hurries(tmp_path: Path) -> None:
    """A child that does not stop is not waited for."""
    with running(tmp_path / "data") as up:
        worker = up.child(" worker ")
        os.kill(worker, signal.SIGSTOP)
        up.process.send_signal(signal.SIGINT)
        eventually(lambda: "stopping" in up.text(), "the first")
        with Stopwatch() as stopping:
            up.process.send_signal(signal.SIGINT)
            assert up.process.wait(60) == 0
        assert stopping.seconds < 5, "the first one leaves it 35"
        assert not alive(worker)


def test_workers_end_with_status_0(tmp_path: Path) -> None:
    """Each time: processes that used the SDK have been seen to abort at their very end."""
    data = tmp_path / "data"
    signals = [signal.SIGTERM, signal.SIGINT] * 3
    with running(data, "--workers", "0"):
        command = [CARILLON, "worker", "--data-dir", data]
        with (tmp_path / "worker.log").open("wb") as log:
            workers = [
                subprocess.Popen(command, env=bare_environment(), stdout=log, stderr=log) for _ in signals
            ]
        address = settings_for(data).temporal_address
        try:
            eventually(lambda: _workers_polling(address) >= len(workers), "polls of all workers")
            for worker, number in zip(workers, signals, strict=True):
                worker.send_signal(number)
            ends = [worker.wait(20) for worker in workers]
            assert ends == [0] * len(workers), (tmp_path / "worker.log").read_text()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def test_ports_are_found_by_the_other_commands(tmp_path: Path) -> None:
    ports = choose_ports("127.0.0.1", {"--api-port": 0, "--temporal-port": 0, "--ui-port": 0})
    options = [part for option, port in ports.items() for part in (option, str(port))]
    with running(tmp_path / "data", "--workers", "0", *options):
        settings = settings_for(tmp_path / "data")
        assert settings.api_port == ports["--api-port"]
        assert settings.temporal_address == f"127.0.0.1:{ports['--temporal-port']}"
        report = subprocess.run(
            [CARILLON, "doctor", "--json", "--data-dir", tmp_path / "data"],
            env=bare_environment(),
            capture_output=True,
            text=True,
        )
    states = {finding["subject"]: finding["state"] for finding in json.loads(report.stdout)}
    assert report.returncode == 0, report.stdout
    for subject in (
        "Temporal server",
        "search attributes",
        "clock",
        "database schema",
        "matching.enableFairness",
    ):
        assert states[subject] == "ok"


def _token(data_dir: Path) -> str:
    return subprocess.run(
        [CARILLON, "token", "--data-dir", data_dir, "--tenant", "acme", "--scope", "jobs:read"],
        env=bare_environment(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()[-1]


def _workers_polling(address: str) -> int:
    from infra.temporal.binary import find_binary
    from workflows.contracts.names import MAIN_QUEUE

    shown = subprocess.run(
        [
            find_binary(environment=os.environ), "task-queue", "describe", "--task-queue", MAIN_QUEUE,
            "--task-queue-type", "workflow", "--address", address, "--output", "json",
        ],
        capture_output=True,
        text=True,
    ).stdout  # fmt: skip
    return len({poller["identity"] for poller in json.loads(shown or "{}").get("pollers") or []})
