"""ETags: a job's revision in quotes, and what If-Match and If-None-Match ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from api.problems import Kind, ProblemError, invalid_parameter

_TAG = re.compile(r'\s*(W/)?"([^"]*)"\s*')
MAX_HEADER = 1000


def etag(revision: int) -> str:
    return f'"{revision}"'


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Revisions the caller is content with; None: any, as long as the job exists (``*``)."""

    revisions: frozenset[int] | None

    def single(self) -> int | None:
        """The one revision asked for, if it is one: the workflow compares it then."""
        return next(iter(self.revisions)) if self.revisions and len(self.revisions) == 1 else None

    def has(self, revision: int) -> bool:
        return self.revisions is None or revision in self.revisions

    def check(self, revision: int) -> None:
        if not self.has(revision):
            raise mismatch(revision)


def mismatch(revision: int | None) -> ProblemError:
    found = "there is no such job" if revision is None else f"it is at revision {revision} now"
    return ProblemError(
        Kind.REVISION_MISMATCH,
        f"The job is not the one If-Match names: {found}. Read it again, then send the change.",
    )


def parse_if_match(header: str | None) -> IfMatch | None:
    """Weak tags and tags that are no revision never match (RFC 9110, 13.1.1)."""
    if header is None:
        return None
    if header.strip() == "*":
        return IfMatch(None)
    if header.strip().isdecimal() and len(header) < 20:
        return IfMatch(frozenset({int(header)}))
    return IfMatch(
        frozenset(
            int(tag)
            for weak, tag in _tags("If-Match", header)
            if not weak and tag.isascii() and tag.isdecimal() and len(tag) < 20
        )
    )


def wants_absence(header: str | None) -> bool:
    """Whether If-None-Match asks that the job does not exist yet; only ``*`` has a meaning here."""
    if header is None:
        return False
    if header.strip() != "*":
        raise invalid_parameter(
            "If-None-Match", "Only `If-None-Match: *` has a meaning here: create, do not replace."
        )
    return True


def _tags(name: str, header: str) -> list[tuple[bool, str]]:
    found = []
    for part in header[:MAX_HEADER].split(","):
        match = _TAG.fullmatch(part)
        if match is None:
            raise invalid_parameter(name, f'`{name}` must be `*` or the ETag of an answer, such as `"3"`.')
        found.append((match.group(1) is not None, match.group(2)))
    return found
