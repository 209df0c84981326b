"""From a pydantic validation error to ``errors[]`` with JSON pointers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from api.problems import FieldError, Kind, ProblemError

MAX_ERRORS = 20


def escape(part: str | int) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")


def pointer_into(document: Any, loc: Sequence[str | int], *, missing: bool) -> str:
    """The pointer of an error; drops the names of union members, which pydantic puts into ``loc``."""
    pointer = ""
    value = document
    for index, part in enumerate(loc):
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value = value[part]
        elif not (missing and index == len(loc) - 1):
            continue
        pointer += "/" + escape(part)
    return pointer


def problem_of(
    errors: Iterable[ErrorDetails], document: Any, *, model: type[BaseModel] | None = None
) -> ProblemError:
    """One 422 for all of them; a union's complaints about one field become one entry."""
    found: dict[str, str] = {}
    for error in errors:
        pointer = pointer_into(document, error["loc"], missing=error["type"] == "missing")
        found.setdefault(pointer, _detail(error, model))
    entries = [FieldError(pointer=pointer, detail=detail) for pointer, detail in found.items()]
    first = entries[0]
    where = f"`{first.pointer}`: " if first.pointer else ""
    more = f" ({len(entries) - 1} more in `errors`)" if len(entries) > 1 else ""
    return ProblemError(Kind.INVALID, f"{where}{first.detail}{more}", errors=entries[:MAX_ERRORS])


def _detail(error: ErrorDetails, model: type[BaseModel] | None) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown_field(error["loc"], model)
    if error["type"] == "missing":
        return "This field is required."
    message = error["msg"].removeprefix("Value error, ")
    if error["type"].startswith("time_delta"):
        return "Give a duration in ISO 8601 (`PT90S`) or a number of seconds; " + _lower(message)
    return message


def _unknown_field(loc: Sequence[str | int], model: type[BaseModel] | None) -> str:
    name = str(loc[-1])
    known = _names(model, loc[:-1])
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"There is no such field; did you mean `{close[0]}`?"
    return "There is no such field" + (f"; there are {', '.join(known)}." if known else "; leave it out.")


def _names(model: type[BaseModel] | None, path: Sequence[str | int]) -> list[str]:
    if model is None:
        return []
    for part in path:
        if isinstance(part, int):
            continue
        inner = next(
            (f.annotation for name, f in model.model_fields.items() if part in (f.alias or name, name)), None
        )
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
