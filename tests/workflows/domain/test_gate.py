"""The concurrency gate under ``forbid``, as a table."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.workflows.domain.states import at
from workflows.domain.gate import ActiveRun, Decision, decide

GRACE = timedelta(seconds=90)


def run(*, fires: float, started: float, ended: float | None, scheduled: bool = True) -> ActiveRun:
    return ActiveRun(scheduled, at(fires), at(started), None if ended is None else at(ended))


TABLE: dict[str, tuple[float, ActiveRun | None, Decision]] = {
    "nothing is active": (2, None, Decision.RUN),
    "its predecessor is active": (2, run(fires=1, started=1, ended=None), Decision.SKIP),
    "its predecessor was active": (2, run(fires=1, started=1, ended=2.1), Decision.SKIP),
    "due as the predecessor starts": (1, run(fires=0, started=1, ended=2), Decision.SKIP),
    "due as the predecessor ends": (2, run(fires=1, started=1, ended=2), Decision.RUN),
    "due before the predecessor started": (1, run(fires=0, started=1.1, ended=2), Decision.RUN),
    "due after the predecessor's end": (3, run(fires=1, started=1, ended=2), Decision.RUN),
    "a manual run is active": (2, run(fires=1, started=1, ended=None, scheduled=False), Decision.WAIT),
    "a manual run was active": (2, run(fires=1, started=1, ended=3, scheduled=False), Decision.RUN),
    "started at its grace": (3, run(fires=1, started=2.5, ended=4), Decision.SKIP),
    "started later than its grace, active": (3, run(fires=1, started=2.6, ended=None), Decision.WAIT),
    "started later than its grace, ended": (3, run(fires=1, started=2.6, ended=4), Decision.RUN),
}


@pytest.mark.parametrize(("due", "active", "decision"), TABLE.values(), ids=TABLE)
def test_what_forbid_does_with_an_occurrence(
    due: float, active: ActiveRun | None, decision: Decision
) -> None:
    assert decide(at(due), active, GRACE) is decision
