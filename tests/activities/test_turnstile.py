"""The turnstile's order against a plain model, and what its places promise under cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.turnstile import FairQueue, Ticket, Turnstile

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def push(queue: FairQueue, tenant: str, *, weight: float = 1, priority: int = 3, due_s: int = 0) -> Ticket:
    return queue.push(tenant, weight=weight, priority=priority, due=NOON + timedelta(seconds=due_s))


@dataclass(eq=False)
class Waiting:
    tenant: str
    weight: float
    rank: tuple[int, int, int]


class Model:
    """Start-time fair queueing with lists and full scans."""

    def __init__(self) -> None:
        self.virtual = 0.0
        self.next_start: dict[str, float] = {}
        self.waiting: list[Waiting] = []

    def push(self, run: Waiting) -> None:
        if all(other.tenant != run.tenant for other in self.waiting):
            self.next_start[run.tenant] = max(self.virtual, self.next_start.get(run.tenant, 0.0))
        self.waiting.append(run)

    def pop(self) -> Waiting:
        run = min(self.waiting, key=lambda one: (self.next_start[one.tenant], one.rank))
        self.waiting.remove(run)
        self.virtual = self.next_start[run.tenant]
        self.next_start[run.tenant] += 1 / run.weight
        self.settle()
        return run

    def discard(self, run: Waiting) -> None:
        self.waiting.remove(run)
        self.settle()

    def settle(self) -> None:
        if not self.waiting:
            self.virtual = 0.0
            self.next_start.clear()


STEP = st.one_of(
    st.tuples(
        st.just("push"),
        st.sampled_from("abcd"),
        st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        st.integers(1, 5),
        st.integers(0, 3),
    ),
    st.tuples(st.just("pop")),
    st.tuples(st.just("discard"), st.integers(0, 1000)),
)


@given(st.lists(STEP, max_size=120))
def test_the_order_is_that_of_the_model(steps: list[tuple[Any, ...]]) -> None:
    """Any sequence of arrivals, withdrawals and picks gives the run that a full scan would pick."""
    queue, model = FairQueue(), Model()
    tickets: dict[Waiting, Ticket] = {}
    for number, step in enumerate(steps):
        if step[0] == "push":
            _, tenant, weight, priority, due = step
            run = Waiting(tenant, weight, (priority, due, number))
            model.push(run)
            tickets[run] = push(queue, tenant, weight=weight, priority=priority, due_s=due)
        elif not model.waiting:
            with pytest.raises(IndexError):
                queue.pop()
        elif step[0] == "pop":
            assert queue.pop() is tickets[model.pop()]
        else:
            run = model.waiting[step[1] % len(model.waiting)]
            model.discard(run)
            queue.discard(tickets[run])
            queue.discard(tickets[run])
        assert len(queue) == len(model.waiting)
    while model.waiting:
        assert queue.pop() is tickets[model.pop()]


def order(queue: FairQueue) -> list[str]:
    return [queue.pop().tenant for _ in range(len(queue))]


def test_a_small_tenant_behind_a_large_one_is_served_in_turn() -> None:
    """20 runs of B that arrive after 300 of A, with equal weights, are through by position 41."""
    queue = FairQueue()
    for _ in range(300):
        push(queue, "a")
    for _ in range(20):
        push(queue, "b")
    served = order(queue)
    assert max(i for i, tenant in enumerate(served, 1) if tenant == "b") <= 41


def test_shares_follow_the_weights() -> None:
    """While both wait, a tenant of weight 3 gets three places for each of one of weight 1."""
    queue = FairQueue()
    for _ in range(400):
        push(queue, "heavy", weight=3)
        push(queue, "light", weight=1)
    assert order(queue)[:400].count("heavy") == pytest.approx(300, abs=2)


def test_idleness_earns_no_credit() -> None:
    """A tenant that comes late shares from then on; it does not make up for what it did not ask."""
    queue = FairQueue()
    for _ in range(200):
        push(queue, "a")
    for _ in range(100):
        queue.pop()
    for _ in range(100):
        push(queue, "b")
    assert order(queue)[:40].count("b") == pytest.approx(20, abs=1)


def test_no_tenant_escapes_its_debt_by_leaving() -> None:
    """A tenant that only ever has one run waiting is charged for each all the same."""
    queue = FairQueue()
    for _ in range(300):
        push(queue, "a")
        push(queue, "b")
    push(queue, "c")
    served = []
    for _ in range(300):
        tenant = queue.pop().tenant
        served.append(tenant)
        if tenant == "c":
            push(queue, "c")
    assert served.count("c") == pytest.approx(100, abs=2)


def test_nobody_starves_beside_many_heavy_tenants() -> None:
    """The lightest tenant is served although heavier ones never stop asking."""
    queue = FairQueue()
    push(queue, "light", weight=0.1)
    push(queue, "light", weight=0.1)
    for _ in range(3):
        for name in ("x", "y", "z"):
            push(queue, name, weight=10)
    for position in range(1, 1000):
        tenant = queue.pop().tenant
        if tenant == "light" and position > 20:
            break
        if tenant != "light":
            push(queue, tenant, weight=10)
    assert position <= 310  # three tenants, a hundred starts each, and ties


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([("p3", 3, 0), ("p1", 1, 9)], ["p1", "p3"], id="priority-before-due"),
        pytest.param([("late", 3, 5), ("early", 3, 1)], ["early", "late"], id="due-before-arrival"),
        pytest.param([("first", 3, 1), ("second", 3, 1)], ["first", "second"], id="then-arrival"),
    ],
)
@pytest.mark.parametrize("same_tenant", [True, False])
def test_order_among_equals(runs: list[tuple[str, int, int]], expected: list[str], same_tenant: bool) -> None:
    queue = FairQueue()
    names = {
        push(queue, "t" if same_tenant else name, priority=priority, due_s=due): name
        for name, priority, due in runs
    }
    assert [names[queue.pop()] for _ in runs] == expected


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_an_odd_weight_stops_nobody(weight: float) -> None:
    """Weights come from a row that an operator edits; the queue stays in order whatever they say."""
    queue = FairQueue()
    for _ in range(10):
        push(queue, "odd", weight=weight)
        push(queue, "plain")
    assert sorted(order(queue)) == ["odd"] * 10 + ["plain"] * 10


def test_many_waiting_cost_little_and_leave_nothing() -> None:
    """10,000 waiting: arrivals, withdrawals and picks stay fast, and no bookkeeping is left over."""
    queue = FairQueue()
    rng = random.Random(7)
    began = time.process_time()
    tickets = [
        push(queue, f"t{rng.randrange(500)}", priority=rng.randint(1, 5), due_s=rng.randrange(60))
        for _ in range(10_000)
    ]
    for ticket in rng.sample(tickets, 5_000):
        queue.discard(ticket)
    for _ in range(20_000):
        queue.pop()
        push(queue, f"t{rng.randrange(500)}", priority=rng.randint(1, 5))
    while len(queue):
        queue.pop()
    assert time.process_time() - began < 10  # 0.3 s here; anything quadratic takes minutes
    assert not queue._tenants
    assert not queue._heads
    assert not queue._finish


def test_a_place_more_than_none() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Turnstile(0)


async def test_never_more_than_the_limit() -> None:
    turnstile = Turnstile(3)
    most = 0

    async def run() -> None:
        nonlocal most
        async with turnstile.place("a", due=NOON):
            most = max(most, turnstile.in_use)
            await asyncio.sleep(0)

    await asyncio.gather(*(run() for _ in range(50)))
    assert most == 3
    assert (turnstile.in_use, turnstile.waiting) == (0, 0)


async def test_a_free_place_is_taken_without_a_turn_of_the_loop() -> None:
    """With places free the turnstile delays nothing: not even by one pass of the event loop."""
    turnstile = Turnstile(1)
    passed: list[bool] = []
    asyncio.get_running_loop().call_soon(passed.append, True)
    async with turnstile.place("a", due=NOON):
        assert not passed
        assert turnstile.in_use == 1


async def waiter(turnstile: Turnstile, entered: list[str], name: str, tenant: str = "a") -> None:
    async with turnstile.place(tenant, due=NOON):
        entered.append(name)


async def test_cancelled_while_waiting() -> None:
    """A waiting run that is cancelled is passed over, and costs its tenant nothing."""
    turnstile = Turnstile(1)
    entered: list[str] = []
    async with turnstile.place("a", due=NOON):
        tasks = {
            name: asyncio.create_task(waiter(turnstile, entered, name, name[0]))
            for name in ("x1", "y1", "y2", "x2")
        }
        await asyncio.sleep(0)
        assert turnstile.waiting == 4
        tasks["x1"].cancel()
    # The place is given back before the cancelled task has run again.
    await asyncio.wait(tasks.values())
    assert entered == ["y1", "x2", "y2"]  # x2 before y2: x was not charged for x1
    assert (turnstile.in_use, turnstile.waiting) == (0, 0)
    assert not turnstile._granted


async def test_cancelled_in_the_moment_of_the_grant() -> None:
    """The place was granted, the task cancelled before it ran again: the next one gets the place."""
    turnstile = Turnstile(1)
    entered: list[str] = []
    async with turnstile.place("a", due=NOON):
        first = asyncio.create_task(waiter(turnstile, entered, "first"))
        second = asyncio.create_task(waiter(turnstile, entered, "second"))
        await asyncio.sleep(0)
    assert turnstile.in_use == 1
    first.cancel()
    await asyncio.wait([first, second])
    assert entered == ["second"]
    assert (turnstile.in_use, turnstile.waiting) == (0, 0)


async def test_cancelled_at_random() -> None:
    """Whenever cancellations come, every place comes back and everyone else gets in."""
    rng = random.Random(11)
    turnstile = Turnstile(4)
    entered = 0

    async def run(steps: int) -> None:
        nonlocal entered
        async with turnstile.place(rng.choice("abc"), weight=rng.choice([1, 2]), due=NOON):
            assert turnstile.in_use <= 4
            entered += 1
            for _ in range(steps):
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(run(rng.randrange(4))) for _ in range(400)]
    doomed = rng.sample(tasks, 150)
    for task in doomed:
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert entered >= 250
    assert (turnstile.in_use, turnstile.waiting) == (0, 0)
    assert not turnstile._granted


async def test_a_failing_run_gives_its_place_back() -> None:
    turnstile = Turnstile(1)

    async def fail() -> None:
        async with turnstile.place("a", due=NOON):
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert turnstile.in_use == 0
