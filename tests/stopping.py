"""What the answer to a stop says of the runs that it did not end at once."""

from __future__ import annotations

import httpx


def going_on(answer: httpx.Response) -> set[str]:
    """Their keys.

    Whether one is ``in_flight`` or ``stopping`` still depends on how soon its worker's word comes: on a
    busy machine that may take longer than the two seconds for which a stop waits.
    """
    assert answer.status_code == 200, answer.text
    runs = answer.json()["in_flight"]
    assert {run["state"] for run in runs} <= {"in_flight", "stopping"}, runs
    return {run["key"] for run in runs}
