"""The namespace of a real server has what jobs need."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.client import Client

from infra.settings import Settings
from infra.temporal.client import connect
from infra.temporal.errors import SetupError
from infra.temporal.namespace import (
    ensure_retention,
    ensure_search_attributes,
    missing_search_attributes,
    retention,
)


async def test_search_attributes_are_there_and_adding_them_again_changes_nothing(
    temporal_client: Client,
) -> None:
    assert await missing_search_attributes(temporal_client) == ()
    assert await ensure_search_attributes(temporal_client) == ()


async def test_retention_is_raised_and_never_lowered(temporal_client: Client) -> None:
    before = await retention(temporal_client)
    assert before >= timedelta(days=3)
    await ensure_retention(temporal_client, before + timedelta(days=1))
    await ensure_retention(temporal_client, timedelta(hours=1))
    assert await retention(temporal_client) == before + timedelta(days=1)


async def test_an_address_where_nothing_answers_is_named(temporal_settings: Settings) -> None:
    settings = temporal_settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    with pytest.raises(SetupError, match=r"127\.0\.0\.1:1 .*CARILLON_TEMPORAL_ADDRESS") as caught:
        await connect(settings)
    assert caught.value.code == "temporal_unreachable"
