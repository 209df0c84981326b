"""Parts of the contract that this version cannot carry out: refused by name, never ignored.

A definition that would be stored and then silently not do what it says is worse than a refusal.
Each entry goes away with the feature that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from api.invalid import escape
from api.problems import FieldError, Kind, ProblemError

_TARGETS = ("queue", "container", "workflow", "activity")


def refuse_unbuilt(document: dict[str, Any]) -> None:
    """Raises one 422 that names every field of a kind that is not built yet."""
    found = [FieldError(pointer=pointer, detail=detail) for pointer, detail in _unbuilt(document)]
    if found:
        raise ProblemError(Kind.NOT_BUILT, f"`{found[0].pointer}`: {found[0].detail}", errors=found)


def _unbuilt(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    target = document.get("target")
    if isinstance(target, dict):
        if target.get("type") in _TARGETS:
            yield "/target/type", f"Targets of type `{target['type']}` are not available yet; use `http`."
        headers = target.get("headers")
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if isinstance(value, dict):
                yield (
                    f"/target/headers/{escape(name)}",
                    "Named secrets are not available yet; give the header's value as a text.",
                )


_SETTINGS = ("signing_secrets", "default_timezone", "default_spread", "revoked_tokens")


def refuse_unbuilt_settings(document: dict[str, Any]) -> None:
    """Of a tenant. Raises one 422 that names every setting of a kind that is not built yet."""
    found = [
        FieldError(pointer=f"/{name}", detail=f"The setting `{name}` is not available yet; leave it out.")
        for name in _SETTINGS
        if name in document
    ]
    if found:
        raise ProblemError(Kind.NOT_BUILT, f"`{found[0].pointer}`: {found[0].detail}", errors=found)
