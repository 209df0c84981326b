"""Whether the machine ran while a test did: most tests here are about instants, and others share it.

A test that fails while its process stood still for a second shows nothing. It is run again with fixtures
made anew, twice at most, and listed as ``RERUN`` with how long that was; a failure on a machine that ran
counts at once (decision 21).
"""

from __future__ import annotations

import threading
import time
from collections import deque

import pytest
from _pytest.runner import runtestprotocol
from _pytest.terminal import TerminalReporter

TOO_LONG_S = 1.0
TIMES = 2
_TICK_S = 0.1


class Watch:
    """Notices when nothing of this process ran, be it its machine that stood still. One that computed
    meanwhile, so that no other thread came to its turn, did not stand still."""

    def __init__(self) -> None:
        self._gaps: deque[tuple[float, float]] = deque(maxlen=1000)
        threading.Thread(target=self._tick, daemon=True, name="standstill").start()

    def longest(self, since: float) -> float:
        """Seconds of the longest standstill that ended after ``since``, on the monotonic clock."""
        return max((length for end, length in self._gaps if end > since), default=0.0)

    def _tick(self) -> None:
        before, used = time.monotonic(), time.process_time()
        while True:
            time.sleep(_TICK_S)
            now, worked = time.monotonic(), time.process_time() - used
            if now - before > 2 * _TICK_S and worked < (now - before) / 2:
                self._gaps.append((now, now - before))
            before, used = now, used + worked


_watch = Watch()


_tried = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    tried = item.stash.get(_tried, 0)
    if not tried:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    begun = time.monotonic()
    reports = _end_what_is_shared(item) if tried else []
    reports += runtestprotocol(item, nextitem=nextitem, log=False)
    if tried < TIMES and any(report.failed for report in reports):
        time.sleep(2 * _TICK_S)  # for the tick that notices
        stood = _watch.longest(begun)
        if stood >= TOO_LONG_S:
            _log_as_rerun(item, reports, stood)
            item.stash[_tried] = tried + 1
            # By way of the hook, which gives each try its own limit of time.
            item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            return True
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _end_what_is_shared(item: pytest.Item) -> list[pytest.TestReport]:
    """It has seen this test already, whose names are taken. The report, if that failed."""
    ended = pytest.CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(None),
        when="teardown",
        reraise=(pytest.exit.Exception, KeyboardInterrupt),
    )
    report = pytest.TestReport.from_item_and_call(item, ended)
    return [report] if report.failed else []


def _log_as_rerun(item: pytest.Item, reports: list[pytest.TestReport], stood: float) -> None:
    for report in reports:
        if report.failed:
            report.outcome = "rerun"  # type: ignore[assignment]
            report.sections.insert(0, (_SECTION, f"{stood:.1f} s"))
            item.ihook.pytest_runtest_logreport(report=report)


_SECTION = "the machine stood still"


def pytest_report_teststatus(
    report: pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    return ("rerun", "R", ("RERUN", {"yellow": True})) if str(report.outcome) == "rerun" else None


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", []):
        [stood] = [words for name, words in report.sections if name == _SECTION]
        terminalreporter.line(f"RERUN {report.nodeid}: {_SECTION} for {stood}", yellow=True)
