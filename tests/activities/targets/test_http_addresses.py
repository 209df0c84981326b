"""Only checked addresses are connected to, at every attempt."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest

from activities.targets.http import HttpSender
from tests.activities.targets.local_targets import (
    Fired,
    MakeSender,
    Names,
    StartTarget,
    delivery,
    send,
)


@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(["10.0.0.5"], id="private"),
        pytest.param(["127.0.0.1", "10.0.0.5"], id="allowed-and-private"),
        pytest.param(["93.184.216.34", "10.0.0.5"], id="public-and-private"),
        pytest.param(["93.184.216.34", "fe80::1"], id="public-and-link-local"),
        pytest.param(["93.184.216.34", "fe80::1%eth0"], id="with-a-zone"),
        pytest.param(["169.254.169.254"], id="metadata"),
        pytest.param(["64:ff9b::a9fe:a9fe"], id="metadata-over-nat64"),
    ],
)
async def test_one_forbidden_address_blocks_the_name(
    make_sender: MakeSender, start_target: StartTarget, addresses: list[str]
) -> None:
    """Final, and with a kind of its own: not to be confused with a name that cannot be resolved."""
    target = await start_target()
    sender = make_sender(lookup=Names(target_test=addresses))
    fired = Fired()
    answer = await send(sender, delivery(f"http://target.test:{target.port}/"), fired=fired)
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "blocked", False)
    assert (answer.written_at, fired.times, target.connections) == (None, 0, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "LOCALHOST"])
async def test_loopback_is_blocked_unless_allowed(
    make_sender: MakeSender, start_target: StartTarget, host: str
) -> None:
    """However it is spelt; literals do not pass a resolver, and are checked all the same."""
    target = await start_target(host="127.0.0.1")
    sender = make_sender(allow_networks=())
    answer = await send(sender, delivery(f"http://{host}:{target.port}/"))
    assert (answer.error_kind, answer.retryable, target.connections) == ("blocked", False, 0)


async def test_an_allowed_literal_in_another_spelling(sender: HttpSender, start_target: StartTarget) -> None:
    """What is compared after connecting is the address, not its text."""
    target = await start_target()
    url = f"http://[::ffff:127.0.0.1]:{target.port}/"
    assert (await send(sender, delivery(url))).outcome == "succeeded"


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        OSError("resolver is gone"),
        TimeoutError(),
    ],
    ids=["no-such-name", "again", "other", "timeout"],
)
async def test_a_name_that_cannot_be_resolved_is_retried(make_sender: MakeSender, error: OSError) -> None:
    fired = Fired()
    answer = await send(
        make_sender(lookup=Names(target_test=error)), delivery("http://target.test/"), fired=fired
    )
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", "dns", True)
    assert (answer.written_at, fired.times) == (None, 0)


async def test_a_name_without_addresses(make_sender: MakeSender) -> None:
    answer = await send(make_sender(lookup=Names(target_test=[])), delivery("http://target.test/"))
    assert (answer.error_kind, answer.retryable) == ("dns", True)


async def test_the_systems_resolver(make_sender: MakeSender, start_target: StartTarget) -> None:
    """Real names, and a name that RFC 6761 says does not exist."""
    target = await start_target()
    sender = make_sender()
    assert (await send(sender, delivery(f"http://localhost:{target.port}/"))).outcome == "succeeded"
    answer = await send(sender, delivery("http://nowhere.invalid/"), deadline_s=60)
    assert (answer.error_kind, answer.retryable) == ("dns", True)


async def test_rebinding_between_attempts(make_sender: MakeSender, start_target: StartTarget) -> None:
    """The name is looked up and checked each time, an idle connection to the old address or not."""
    target = await start_target()
    names = Names(target_test=["127.0.0.1"])
    sender = make_sender(lookup=names)
    url = f"http://target.test:{target.port}/"
    assert (await send(sender, delivery(url))).outcome == "succeeded"
    names.names["target.test"] = ["169.254.169.254"]
    answer = await send(sender, delivery(url, attempt=2))
    assert (answer.error_kind, answer.retryable) == ("blocked", False)
    assert (names.asked, len(target.requests)) == (2, 1)


async def test_a_pooled_connection_to_an_address_that_the_name_has_left(
    make_sender: MakeSender, start_target: StartTarget
) -> None:
    """Is not used again: the request goes to an address of this attempt's own lookup."""
    old = await start_target()
    try:
        new = await start_target(host="127.0.0.2", port=old.port)
    except OSError:
        pytest.skip("this system has no second loopback address")
    names = Names(target_test=["127.0.0.1"])
    sender = make_sender(lookup=names)
    url = f"http://target.test:{old.port}/"
    await send(sender, delivery(url))
    names.names["target.test"] = ["127.0.0.2"]
    fired = Fired()
    assert (await send(sender, delivery(url), fired=fired)).outcome == "succeeded"
    assert (len(old.requests), len(new.requests), fired.times) == (1, 1, 1)


async def test_the_next_address_is_tried_where_one_does_not_answer(
    make_sender: MakeSender, start_target: StartTarget
) -> None:
    target = await start_target()
    sender = make_sender(lookup=Names(target_test=["127.0.0.3", "::1", "127.0.0.1"]))
    fired = Fired()
    answer = await send(sender, delivery(f"http://target.test:{target.port}/"), fired=fired)
    assert (answer.outcome, fired.times, len(target.requests)) == ("succeeded", 1, 1)


async def test_lookups_in_flight_are_shared_and_none_is_kept(
    make_sender: MakeSender, start_target: StartTarget
) -> None:
    """A burst to one host asks once; one of it that is cancelled leaves the others theirs."""
    target = await start_target()
    asked = 0
    answer_now = asyncio.Event()

    async def lookup(host: str) -> Sequence[str]:
        nonlocal asked
        asked += 1
        await answer_now.wait()
        return ["127.0.0.1"]

    sender = make_sender(lookup=lookup)
    url = f"http://target.test:{target.port}/"
    tasks = [asyncio.create_task(send(sender, delivery(url))) for _ in range(20)]
    await asyncio.sleep(0.01)
    tasks[0].cancel()
    await asyncio.sleep(0)
    answer_now.set()
    answers = await asyncio.gather(*tasks[1:])
    assert {answer.outcome for answer in answers} == {"succeeded"}
    assert (asked, len(target.requests)) == (1, 19)
    await send(sender, delivery(url))
    assert asked == 2


async def test_a_name_that_hangs_meets_the_deadline(make_sender: MakeSender) -> None:
    async def lookup(host: str) -> Sequence[str]:
        await asyncio.sleep(5)
        return []

    fired = Fired()
    answer = await send(
        make_sender(lookup=lookup), delivery("http://target.test/"), deadline_s=0.3, fired=fired
    )
    assert (answer.outcome, answer.error_kind, fired.times) == ("timed_out", "timeout", 0)
