"""JSON merge patch (RFC 7396) over a definition, with the contract's two exceptions.

``schedule`` and ``target`` are replaced whole. A null sets a field that may be null to null, and
gives every other field its default back.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from workflows.contracts.definition import JobDefinition

REPLACED_WHOLE = frozenset({"schedule", "target"})


def merge(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The document after the patch; unknown names stay in it, for validation to refuse."""
    return _merge(JobDefinition, current, patch)


def _merge(model: type[BaseModel] | None, current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    fields = {field.alias or name: field for name, field in model.model_fields.items()} if model else {}
    merged = dict(current)
    for name, value in patch.items():
        field = fields.get(name)
        if value is None and not (field is not None and _nullable(field)):
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict) and name not in REPLACED_WHOLE:
            merged[name] = _merge(_model_of(field), merged[name], value)
        else:
            merged[name] = value
    return merged


def _nullable(field: FieldInfo) -> bool:
    annotation = field.annotation
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation)


def _model_of(field: FieldInfo | None) -> type[BaseModel] | None:
    annotation = field.annotation if field else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
