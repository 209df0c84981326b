"""A failure counts at once on a machine that ran, and is asked again where that stood still."""

from __future__ import annotations

import pytest

STANDSTILL = """
    import os, signal, subprocess, sys

    def stand_still(seconds):
        pid = os.getpid()
        subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {pid}"])
        os.kill(pid, signal.SIGSTOP)
"""


@pytest.mark.parametrize(
    ("body", "outcomes"),
    [
        pytest.param("assert False", {"failed": 1}, id="ran"),
        pytest.param("stand_still(0.3); assert False", {"failed": 1}, id="for a moment"),
        pytest.param("stand_still(1.5)", {"passed": 1}, id="stood still and passed"),
        pytest.param("stand_still(1.5); assert tries > 1", {"passed": 1, "rerun": 1}, id="stood still once"),
        pytest.param("stand_still(1.5); assert False", {"failed": 1, "rerun": 2}, id="each time"),
    ],
)
def test_failures_are_judged_by_whether_the_machine_ran(
    pytester: pytest.Pytester, body: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(
        STANDSTILL
        + f"""
    tries = 0

    def test_it():
        global tries
        tries += 1
        {body}
    """
    )
    found = pytester.runpytest_subprocess(
        "-p", "tests.standstill", "-p", "no:cacheprovider", "--reruns=2", "--only-rerun=StoodStill"
    )
    assert found.parseoutcomes() == outcomes
