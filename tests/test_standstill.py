"""A failure counts at once on a machine that ran, and is asked again where that stood still."""

from __future__ import annotations

import re

import pytest

STANDSTILL = """
    import os, re, signal, subprocess, time
    import pytest

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
        pytest.param(
            "tries > 1 and time.sleep(60); stand_still(1.5); assert False",
            {"failed": 1, "rerun": 1},
            id="and then for good",
        ),
        pytest.param(
            "assert tries > 1 or re.fullmatch(r'(a+)+b', 'a' * 26)", {"failed": 1}, id="kept others out"
        ),
        pytest.param(
            "shared.append(1); tries > 1 or stand_still(1.5); assert len(shared) == 1 and tries > 1",
            {"passed": 1, "rerun": 1},
            id="with fixtures of its own",
        ),
    ],
)
def test_failures_are_judged_by_whether_the_machine_ran(
    pytester: pytest.Pytester, body: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(
        STANDSTILL
        + f"""
    tries = 0

    @pytest.fixture(scope="session")
    def shared():
        return []

    def test_it(shared):
        global tries
        tries += 1
        {body}
    """
    )
    found = pytester.runpytest_subprocess(
        "-p", "tests.standstill", "-p", "no:cacheprovider", "-o", "timeout=6"
    )
    assert found.parseoutcomes() == outcomes
    listed = [
        line for line in found.outlines if re.match(r"RERUN .*: the machine stood still for [1-9]", line)
    ]
    assert len(listed) == outcomes.get("rerun", 0)
