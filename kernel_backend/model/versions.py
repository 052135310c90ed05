"""Read records of another version of Daylight, dropping fields that are unknown here.

Of an answer any field may be dropped. Of a request only one that changes nothing: it is empty, or has the writer's
default value, which the writer names in addition to the request (`at_defaults`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

A = TypeVar("A")
VERSION = "Daylight-Version"  # the header by which clients and services say which version they are
DEFAULTS = "Daylight-Defaults"  # the header by which a client says which fields of its request are at their defaults

MayGo = Callable[[Any, str], bool]  # of a field's value, and its place: `config.search.trials`


def says_nothing(value: Any) -> bool:
    """Return whether a field has the value of an unused one: null, false, or empty."""
    return value is None or value is False or value in ("", [], {})


def changes_nothing(defaults: Collection[str]) -> MayGo:
    """Return whether a request means the same without a field; `defaults` are the paths that its writer named."""
    return lambda value, place: says_nothing(value) or place in defaults


def at_defaults(record: BaseModel, place: str = "") -> Iterator[str]:
    """Yield the paths of a record's fields that have their default values: `config.seed`; none within lists."""
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if not field.is_required() and value == field.get_default(call_default_factory=True):
            yield place + name
        if isinstance(value, BaseModel):
            yield from at_defaults(value, f"{place}{name}.")


def read(kind: type[A] | TypeAdapter[A], data: bytes | Any, may_go: MayGo = lambda value, place: True) -> A:
    """Read a record from JSON data, as text or as Python's values, without its unknown fields.

    Raises ValidationError for any other error, and for an unknown field that `may_go` refuses.
    """
    adapter: TypeAdapter[A] = kind if isinstance(kind, TypeAdapter) else _adapter(cast("Hashable", kind))
    try:
        return adapter.validate_json(data) if isinstance(data, bytes) else adapter.validate_python(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        if not all(each["type"] == "extra_forbidden" for each in found):
            raise
        known = json.loads(data) if isinstance(data, bytes) else data
        unknown = [_keys(known, each["loc"]) for each in found]
        if not all(may_go(each["input"], ".".join(map(str, keys))) for each, keys in zip(found, unknown, strict=True)):
            raise
    for keys in unknown:
        known = _without(known, keys)
    return adapter.validate_python(known)


@lru_cache(256)
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("type[Any]", kind))


def _without(value: Any, keys: Sequence[str | int]) -> Any:
    """Return a copy without the field that these keys lead to."""
    key, rest = keys[0], keys[1:]
    if isinstance(value, dict):
        return {k: _without(v, rest) if k == key else v for k, v in value.items() if rest or k != key}
    return [_without(v, rest) if index == key else v for index, v in enumerate(value)]


def _keys(value: Any, place: Sequence[str | int]) -> list[str | int]:
    """Return the keys of dictionaries and lists in a path, which may also contain a union's tag."""
    found: list[str | int] = []
    for key in place:
        if (isinstance(value, dict) and key in value) or (isinstance(value, list | tuple) and isinstance(key, int)):
            found.append(key)
            value = value[key]  # type: ignore[index]
    return found
