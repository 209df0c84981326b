"""Waiting for what an answer will say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx


async def eventually(
    api: httpx.AsyncClient, path: str, wanted: Callable[[dict[str, Any]], Any], within: float = 60
) -> dict[str, Any]:
    """The first answer that satisfies ``wanted``."""
    document: dict[str, Any] = {}
    try:
        async with asyncio.timeout(within):
            while True:
                answer = await api.get(path)
                document = answer.json()
                if answer.status_code == 200 and wanted(document):
                    return document
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{path} never says so; at last: {document}") from None
