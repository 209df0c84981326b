"""The id of the request that is being answered: in the answer's header, in logs, and in the audit log."""

from __future__ import annotations

import re
from contextvars import ContextVar

HEADER = "X-Request-Id"
_FORM = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """The id of the request this code runs for; empty outside of one."""
    return _current.get()


def begin_request(given: str | None, fresh: str) -> str:
    """Takes the caller's own id if it has a sound form, else the fresh one."""
    chosen = given if given is not None and _FORM.fullmatch(given) else fresh
    _current.set(chosen)
    return chosen
