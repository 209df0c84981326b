"""The documentation: its examples are calls that are accepted, and its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from tests.api.conftest import client_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EVERYTHING = "jobs:read jobs:write tenant:write"


def _calls() -> Iterator[tuple[str, str, str, str | None]]:
    """Page, method, path and body of each ``curl`` that is printed."""
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            for command in re.split(r"\n(?=curl )|(?<=\n)(?=curl )", block):
                words = shlex.split(command) if command.startswith("curl ") else []
                url = next((word for word in words if word.startswith("http")), None)
                if url is None or url.endswith("/v1/events"):
                    continue
                body = words[words.index("-d") + 1] if "-d" in words else None
                method = words[words.index("-X") + 1] if "-X" in words else "POST" if body else "GET"
                yield page.name, method, url.removeprefix("http://127.0.0.1:8080"), body


CALLS = list(_calls())


@pytest.mark.parametrize(
    ("page", "method", "path", "body"),
    CALLS,
    ids=[f"{page} {method} {path}" for page, method, path, _ in CALLS],
)
async def test_a_printed_call_is_accepted(
    offline: FastAPI, page: str, method: str, path: str, body: str | None
) -> None:
    """Temporal is away, so what would be done ends in a 503; a job that is only printed is not there."""
    assert page
    async with client_of(offline, "documented", EVERYTHING) as client:
        headers = {"content-type": "application/json"} if body else {}
        answer = await client.request(method, path, content=body, headers=headers)
    assert answer.status_code in (200, 404, 503), answer.text


def test_there_are_printed_calls_on_most_pages() -> None:
    assert len(CALLS) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_each_file_that_the_documentation_names_is_there() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(
            r"`((?:api|activities|infra|workers|workflows|tests|docs)/[\w./]+)`", page.read_text()
        )
    }
    assert len(named) > 50
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
