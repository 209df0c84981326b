"""The offset to the server's clock."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client

from infra.temporal.clock import clock_offset


async def test_on_one_machine_the_clocks_agree(temporal_client: Client) -> None:
    found = await clock_offset(temporal_client, "test")
    assert found is not None
    assert abs(found.ahead) < timedelta(milliseconds=100) + found.uncertainty
    assert found.uncertainty < timedelta(seconds=5)
