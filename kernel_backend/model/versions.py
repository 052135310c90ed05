"""Read records that another version of Daylight has written, ignoring fields that this version does not know.

In an answer any unknown field may be ignored. In a request only an unknown field without effect may be: an empty one,
or one with the default value of the sender's version (the request lists those in `at_defaults`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

A = TypeVar("A")
VERSION = "Daylight-Version"  # header with the version of a client or service
DEFAULTS = "Daylight-Defaults"  # header in which a client names the fields of its request that have default values

MayGo = Callable[[Any, str], bool]  # predicate of a field's value and its path, such as `config.search.trials`


def says_nothing(value: Any) -> bool:
    """Return whether a field's value means that the field is unused: null, false or empty."""
    return value is None or value is False or value in ("", [], {})


def changes_nothing(defaults: Collection[str]) -> MayGo:
    """Return a predicate of an unknown field in a request: True if the field can be ignored without effect.

    That is so if the field is null, false or empty, or if its path is in `defaults`, the paths of fields that have the
    sender's default values.
    """
    return lambda value, place: says_nothing(value) or place in defaults


def at_defaults(record: BaseModel, place: str = "") -> Iterator[str]:
    """Yield the paths of a record's fields that have default values, such as `config.seed`.

    Fields in lists are skipped. `place` is the prefix of all paths, such as `config.`.
    """
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if not field.is_required() and value == field.get_default(call_default_factory=True):
            yield place + name
        if isinstance(value, BaseModel):
            yield from at_defaults(value, f"{place}{name}.")


def read(kind: type[A] | TypeAdapter[A], data: bytes | Any, may_go: MayGo = lambda value, place: True) -> A:
    """Parse a record of class `kind` from JSON bytes or Python values, ignoring unknown fields.

    `may_go` gets the value and the path of each unknown field, and returns whether it may be ignored. Raises
    ValidationError if it returns False, and for any other error.
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
    """Return a copy of JSON data without the field at the path `keys`."""
    key, rest = keys[0], keys[1:]
    if isinstance(value, dict):
        return {k: _without(v, rest) if k == key else v for k, v in value.items() if rest or k != key}
    return [_without(v, rest) if index == key else v for index, v in enumerate(value)]


def _keys(value: Any, place: Sequence[str | int]) -> list[str | int]:
    """Return those elements of a pydantic error path that are keys in the data `value`, without the tags of unions."""
    found: list[str | int] = []
    for key in place:
        if (isinstance(value, dict) and key in value) or (isinstance(value, list | tuple) and isinstance(key, int)):
            found.append(key)
            value = value[key]  # type: ignore[index]
    return found
