"""Ports asked for must be free; 0 takes any."""

from __future__ import annotations

import socket
import threading

import pytest

from api.cli.ports import choose_ports
from infra.temporal.errors import SetupError


def test_any_free_ports_differ_and_can_be_used() -> None:
    ports = choose_ports("127.0.0.1", {"--a": 0, "--b": 0, "--c": 0})
    assert list(ports) == ["--a", "--b", "--c"]
    assert len(set(ports.values())) == 3
    for port in ports.values():
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_taken_port_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port} \(--b\).*--b 0") as caught:
            choose_ports("127.0.0.1", {"--a": 0, "--b": port})
    assert caught.value.code == "port_taken"


def test_one_port_for_two_options_is_refused() -> None:
    [port] = choose_ports("127.0.0.1", {"--a": 0}).values()
    with pytest.raises(SetupError, match=f"port {port}"):
        choose_ports("127.0.0.1", {"--a": port, "--b": port})


def test_a_port_that_is_just_being_freed_is_waited_for() -> None:
    """As after an installation was killed and is started again at once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        timer = threading.Timer(0.2, taken.close)
        timer.start()
        assert choose_ports("127.0.0.1", {"--a": port}) == {"--a": port}
        timer.join()
