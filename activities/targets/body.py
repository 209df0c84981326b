"""The bytes of a request's body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_UNICODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ASCII = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False)
"""For text with half of a surrogate pair, which only an escape can carry."""


def encode_body(body: Any, headers: Mapping[str, str]) -> tuple[bytes | None, str | None]:
    """The body's bytes, and the content type to add if the job's headers name none.

    ``None`` is no body. A string under a content type of the job's own that is not JSON is sent as
    the text itself; everything else is JSON, compact, UTF-8, members in the order of the
    definition. The same definition always gives the same bytes. Raises ValueError for what JSON
    cannot say (NaN, infinities).
    """
    if body is None:
        return None, None
    content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), None)
    added = "application/json" if content_type is None else None
    if isinstance(body, str) and content_type is not None and not _is_json(content_type):
        try:
            return body.encode(), added
        except UnicodeEncodeError:
            raise ValueError("the body has half of a surrogate pair, which no text can carry") from None
    try:
        return _UNICODE.encode(body).encode(), added
    except UnicodeEncodeError:
        return _ASCII.encode(body).encode(), added


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")
