"""Read records that another version of Daylight has written: fields that are not known here are left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

A = TypeVar("A")
VERSION = "Daylight-Version"  # the header by which clients and services say which version they are


def says_nothing(value: Any) -> bool:
    """Return whether a field has the value of one that is not used: null, false, or empty."""
    return value is None or value is False or value in ("", [], {})


def read(kind: type[A] | TypeAdapter[A], data: bytes | Any, may_go: Callable[[Any], bool] = lambda value: True) -> A:
    """Return what JSON data, as text or as Python's values, describes, without its unknown fields.

    Raises ValidationError for what is wrong otherwise, and for an unknown field whose value `may_go` says no to.
    """
    adapter: TypeAdapter[A] = kind if isinstance(kind, TypeAdapter) else _adapter(cast("Hashable", kind))
    try:
        return adapter.validate_json(data) if isinstance(data, bytes) else adapter.validate_python(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        if not all(each["type"] == "extra_forbidden" and may_go(each["input"]) for each in found):
            raise
    known = json.loads(data) if isinstance(data, bytes) else data
    for each in found:
        known = _without(known, each["loc"])
    return adapter.validate_python(known)


@lru_cache(256)
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("type[Any]", kind))


def _without(value: Any, place: Sequence[str | int]) -> Any:
    """Return a copy without the field at `place`, in which a union's tag may stand besides keys and indices."""
    key, rest = place[0], place[1:]
    if isinstance(value, dict) and key in value:
        return {k: _without(v, rest) if k == key else v for k, v in value.items() if rest or k != key}
    if isinstance(value, list | tuple) and isinstance(key, int):
        return [_without(v, rest) if index == key else v for index, v in enumerate(value)]
    return _without(value, rest) if rest else value
