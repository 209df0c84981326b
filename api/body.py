"""Reading a JSON body: its size and its depth are bounded before anything is parsed.

Every problem a body can have short of its meaning is found here: media type, size, encoding,
depth, syntax, names given twice, and text or numbers that no database or target could take.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from typing import Any

from starlette.requests import Request

from api.problems import Kind, ProblemError, invalid
from workflows.contracts.definition import DEFINITION_MAX_BYTES

JSON_TYPES = ("application/json",)
PATCH_TYPES = ("application/merge-patch+json", "application/json")
BATCH_MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
"""Objects and arrays within each other, the outermost included."""
MAX_NUMBER_DIGITS = 300

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


async def read_object(
    request: Request,
    *,
    media_types: Collection[str] = JSON_TYPES,
    limit: int = DEFINITION_MAX_BYTES,
    may_be_empty: bool = False,
) -> dict[str, Any]:
    """The body as a JSON object; an empty one is ``{}`` where that is allowed."""
    raw = await _read(request, limit)
    if not raw and may_be_empty:
        return {}
    _check_media_type(request.headers.get("content-type"), media_types)
    if not raw:
        raise ProblemError(Kind.MALFORMED, "The body is empty; send a JSON object.")
    value = parse(raw)
    if not isinstance(value, dict):
        raise invalid("The body must be a JSON object.")
    return value


def parse(raw: bytes) -> Any:
    """Strict JSON. Raises :class:`ProblemError` for everything else."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(
            Kind.MALFORMED, f"The body is not UTF-8 (at byte {error.start}); send JSON in UTF-8."
        ) from None
    _check_depth(raw)
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded_int,
            object_pairs_hook=_distinct,
        )
    except json.JSONDecodeError as error:
        raise ProblemError(
            Kind.MALFORMED, f"Not JSON at line {error.lineno}, column {error.colno}: {error.msg}."
        ) from None
    _check_text(text, value)
    return value


async def _read(request: Request, limit: int) -> bytes:
    too_large = ProblemError(
        Kind.TOO_LARGE,
        f"The body is larger than {limit // 1024} KiB, the most this call takes; make it smaller.",
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)


def _check_media_type(header: str | None, allowed: Collection[str]) -> None:
    if header is None:
        return
    media_type, _, parameters = header.partition(";")
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    wanted = " or ".join(f"`{name}`" for name in allowed)
    if media_type.strip().lower() not in allowed:
        raise ProblemError(
            Kind.UNSUPPORTED_MEDIA_TYPE,
            f"Send the body as {wanted} (Content-Type), not as `{media_type.strip()[:100]}`.",
        )
    if charset and charset.group(1).lower() not in ("utf-8", "utf8", "us-ascii"):
        raise ProblemError(Kind.UNSUPPORTED_MEDIA_TYPE, "Send the body in UTF-8.")


def _check_depth(raw: bytes) -> None:
    """Counts brackets outside of texts, so that no parser has to recurse to find out."""
    depth = 0
    for bracket in _BRACKET.finditer(_TEXT.sub(b"", raw)):
        depth += 1 if bracket.group() in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ProblemError(
                Kind.MALFORMED, f"The body is nested more than {MAX_DEPTH} levels deep; make it flatter."
            )


def _refuse_constant(name: str) -> Any:
    raise ProblemError(Kind.MALFORMED, f"`{name}` is not JSON; leave the value out or send null.")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ProblemError(Kind.MALFORMED, f"The number {text[:40]} is too large.")
    return value


def _bounded_int(text: str) -> int:
    if len(text) > MAX_NUMBER_DIGITS:
        raise ProblemError(
            Kind.MALFORMED, f"The number {text[:40]}… has more than {MAX_NUMBER_DIGITS} digits."
        )
    return int(text)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ProblemError(Kind.MALFORMED, f"The name `{twice[:100]}` is given twice in one object.")
    return value


def _check_text(text: str, value: Any) -> None:
    """No lone surrogates (nothing could encode them) and no NUL (databases refuse it)."""
    if "\\u" not in text:
        return
    for part in _texts(value):
        if "\x00" in part:
            raise ProblemError(Kind.MALFORMED, "A text holds the character U+0000; leave it out.")
        if not part.isascii():
            try:
                part.encode()
            except UnicodeEncodeError:
                raise ProblemError(
                    Kind.MALFORMED, "A text holds half of a surrogate pair (`\\ud800`); escape it whole."
                ) from None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts(item)
