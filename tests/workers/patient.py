"""Small workflows, to see what the SDK does with a history that a worker loads anew."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import activity, workflow

ASIDE = "replayable-aside"
"""The queue of the activity: it ends also while no worker has the workflow."""


@activity.defn
async def aside() -> None:
    await asyncio.sleep(1)


class Patient:
    def __init__(self) -> None:
        self.heard = 0

    @workflow.query
    def view(self) -> int:
        return self.heard

    @workflow.signal
    def hear(self) -> None:
        self.heard += 1

    @workflow.update
    async def change(self) -> datetime:
        await workflow.sleep(0.05)
        return workflow.now()


@workflow.defn
class Woken(Patient):
    """Each signal starts a timer in the main coroutine."""

    @workflow.run
    async def run(self) -> None:
        for wanted in range(1, 4):
            await workflow.wait_condition(lambda wanted=wanted: self.heard >= wanted)  # type: ignore[misc]
            await workflow.sleep(0.3)


@workflow.defn
class Asleep(Patient):
    """Sleeps until an instant, as a job until its occurrence: again if it is not that late yet."""

    @workflow.run
    async def run(self, until: datetime) -> int:
        sleeps = 0
        while (left := until - workflow.now()) > timedelta(0):
            sleeps += 1
            await workflow.sleep(left)
        return sleeps


@workflow.defn
class Resting(Patient):
    """What comes back from aside is counted only; a change asks again if nothing is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.heard > 0)
        self.under_way += 1
        await workflow.execute_activity(aside, task_queue=ASIDE, start_to_close_timeout=timedelta(seconds=9))
        self.under_way -= 1
        await workflow.wait_condition(lambda: self.heard > 9)

    @workflow.update
    async def ask(self) -> None:
        if self.under_way:
            await workflow.sleep(0.05)
        else:
            await workflow.execute_activity(
                aside, task_queue=ASIDE, start_to_close_timeout=timedelta(seconds=9)
            )


@workflow.defn
class Renewed(Patient):
    """Continues as new once something has come back from aside, unless a change is being made."""

    def __init__(self) -> None:
        super().__init__()
        self.run_number = 0

    @workflow.run
    async def run(self, number: int) -> None:
        self.run_number = number
        await workflow.wait_condition(lambda: self.heard > 0 or number > 0)
        await workflow.execute_activity(aside, task_queue=ASIDE, start_to_close_timeout=timedelta(seconds=9))
        if number == 0:
            await workflow.wait_condition(workflow.all_handlers_finished)
            workflow.continue_as_new(number + 1)
        await workflow.wait_condition(lambda: self.heard > 9)

    @workflow.update
    async def number(self) -> int:
        return self.run_number
