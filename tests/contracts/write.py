"""Writes the payloads of a release: ``python -m tests.contracts.write 0.2.0``.

Done once for each release, just before it; what is written is never changed afterwards.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel

AT = "2026-12-01T09:00:00.123456Z"
BY_NAME: dict[str, Any] = {
    "schedule": {"cron": ["0 9 * * 1-5", "30 4 * * *"], "timezone": "Europe/London", "gap": "skip"},
    "BulkFilter.target": "http",
    "target": {"type": "http", "url": "https://example.com/hook", "method": "PUT", "body": {"a": [1]}},
    "url": "https://example.com/hook",
    "cron": "0 9 * * *",
    "group": "reports",
    "success": ["2xx", "404"],
    "body": {"value": {"any": ["json", None]}},
    "records": [],
    "errands": [],
    "timeout": "PT9S",
    "max_duration": "PT8M",
    "heartbeat_timeout": "PT4S",
    "jitter": 0.5,
    "factor": 3.0,
    "key": "acme/report~2:2026-12-01T09:00:00Z",
}
"""Fields whose values follow a rule of their own; of the others the type decides."""
SCALARS: tuple[tuple[Any, Any], ...] = (
    (bool, True), (int, 3), (float, 1.5), (str, "text"), (datetime, AT), (AwareDatetime, AT),
    (timedelta, "PT7S"),
)  # fmt: skip


def sample(annotation: Any, name: str = "") -> Any:
    """A value of this type in JSON, none of its parts left to a default."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return sample(arguments[0], name)
    if origin is typing.Literal:
        return arguments[-1]
    if origin in (typing.Union, types.UnionType):
        return sample(next(one for one in arguments if one is not type(None)), name)
    if origin in (list, tuple):
        return [sample(arguments[0], name)]
    if origin is dict:
        return {"name": sample(arguments[1], name)}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return payload(annotation, required=False)
    return next((value for kind, value in SCALARS if annotation is kind), None)


def payload(model: type[BaseModel], *, required: bool) -> dict[str, Any]:
    """A payload with every field set, or with those only that have no default."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if required and not field.is_required():
            continue
        if model.__name__ == "Schedule" and name in ("every", "anchor", "at", "in_"):
            continue
        chosen = BY_NAME.get(f"{model.__name__}.{name}", BY_NAME.get(name))
        value = sample(field.annotation, name) if chosen is None else chosen
        found[field.alias or name] = value
    return found


def main(release: str) -> None:
    from tests.contracts.test_released_payloads import models, written

    payloads = {}
    for name, model in sorted(models().items()):
        full, least = payload(model, required=False), payload(model, required=True)
        model.model_validate(least)
        payloads[name] = {"required": least, "full": written(model.model_validate(full))}
    path = Path(__file__).with_name(f"released-{release}.json")
    path.write_text(json.dumps(payloads, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
