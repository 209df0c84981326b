"""What filters have in common, in queries and in bodies: one that nothing can match is refused, not empty."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from workflows.contracts.names import GROUP_PATTERN, JOB_ID_PATTERN

LABEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
"""What the name of a label may be."""


def labels_of(texts: Sequence[str]) -> dict[str, str]:
    """The pairs of ``name=value``. Raises ValueError if no job can have them all."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or LABEL_NAME.fullmatch(name) is None:
            raise ValueError(f"a label is given as name=value, such as team=billing; not as {text[:80]!r}")
        if pairs.setdefault(name, value) != value:
            raise ValueError(
                f"a job has one value of a label, so none is both {name[:80]}={pairs[name][:80]} and "
                f"{text[:160]}; ask for one of them at a time"
            )
    return pairs


def not_before(until: datetime | None, since: datetime | None) -> datetime | None:
    """``until``. Raises ValueError if the range is the wrong way round."""
    if since is not None and until is not None and until < since:
        raise ValueError(
            "`until` is earlier than `since`, so nothing can match; exchange the two, or leave one out"
        )
    return until


def _job(value: str) -> str:
    if re.fullmatch(JOB_ID_PATTERN, value) is None:
        raise ValueError(
            f"no job can have this id (`{JOB_ID_PATTERN}`); give it alone, in small letters, without its "
            "tenant or generation"
        )
    return value


def _group(value: str) -> str:
    if re.fullmatch(GROUP_PATTERN, value) is None:
        raise ValueError(f"no group can have this name (`{GROUP_PATTERN}`); give it in small letters")
    return value


def _text(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


JobIdFilter = Annotated[str, AfterValidator(_job), _text(JOB_ID_PATTERN)]
GroupFilter = Annotated[str, AfterValidator(_group), _text(GROUP_PATTERN)]
