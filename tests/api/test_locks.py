"""One change in flight per job: in order, bounded in time and number, and nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest

from api.jobs.locks import JobLocks
from api.problems import ProblemError


async def test_callers_follow_one_another_in_the_order_they_came() -> None:
    locks, order = JobLocks(), []

    async def call(number: int) -> None:
        async with locks.held("job", within_s=5):
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(call(number) for number in range(5)))
    assert order == [number for number in range(5) for _ in range(2)]
    assert len(locks) == 0


async def test_jobs_do_not_wait_for_one_another() -> None:
    locks = JobLocks()
    async with locks.held("one", within_s=0.01), locks.held("two", within_s=0.01):
        assert len(locks) == 2
    assert len(locks) == 0


async def test_who_cannot_have_it_in_time_is_told_that_nothing_was_done() -> None:
    locks = JobLocks()
    async with locks.held("job", within_s=1):
        with pytest.raises(ProblemError) as refused:
            async with locks.held("job", within_s=0.01):
                pytest.fail("two hold it")
        assert refused.value.kind.status == 503
        assert "not applied" in refused.value.detail
    async with locks.held("job", within_s=0.01):
        pass
    assert len(locks) == 0


async def test_only_so_many_may_wait() -> None:
    locks = JobLocks(max_waiting=2)
    async with locks.held("job", within_s=1):
        waiting = [asyncio.create_task(_take(locks)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ProblemError):
            await _take(locks)
    await asyncio.gather(*waiting)
    assert len(locks) == 0


async def test_a_caller_that_gives_up_leaves_its_place() -> None:
    locks = JobLocks()
    async with locks.held("job", within_s=1):
        waiting = asyncio.create_task(_take(locks))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert len(locks) == 0


async def _take(locks: JobLocks) -> None:
    async with locks.held("job", within_s=1):
        pass
