"""Read records that another version of Daylight has written, ignoring fields that this version does not know.

In an answer any unknown field may be ignored. In a request only an unknown field without effect may be: an empty one,
or one with the default value of the sender's version (the request lists those in `at_defaults`).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from kernel_backend.model.record import first_problems

A = TypeVar("A")
MOST_VALUES = 2**16  # of a JSON text from outside: each costs microseconds, and one that is wrong a hundred bytes more
# A string of a JSON text, closed or not: matched wherever a quote begins one, so that the search takes linear time.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
VERSION = "Daylight-Version"  # header with the version of a client or service
# Header with a request's id, so that it may be repeated; in answers it says that the service knows ids.
REQUEST = "Daylight-Request"
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


def read(
    kind: type[A] | TypeAdapter[A],
    data: bytes | Any,
    may_go: MayGo = lambda value, place: True,
    *,
    of_service: bool = False,
) -> A:
    """Parse a record of class `kind` from JSON bytes or Python values, ignoring unknown fields.

    `may_go` gets the value and the path of each unknown field, and returns whether it may be ignored. Raises
    ValidationError if it returns False, and for any other error, such as more than `MOST_VALUES` values in JSON bytes.
    An answer `of_service`, which a client reads, may have any number of values and of unknown fields.
    """
    adapter: TypeAdapter[A] = kind if isinstance(kind, TypeAdapter) else _adapter(cast("Hashable", kind))
    if isinstance(data, bytes) and not of_service:
        check_values(data)
    try:
        return adapter.validate_json(data) if isinstance(data, bytes) else adapter.validate_python(data)
    except ValidationError as error:
        found = error.errors(include_url=False) if of_service else first_problems(error)
        if len(found) < error.error_count() or not all(each["type"] == "extra_forbidden" for each in found):
            raise
        known = json.loads(data) if isinstance(data, bytes) else copy.deepcopy(data)
        unknown = [_keys(known, each["loc"]) for each in found]
        if not all(may_go(each["input"], ".".join(map(str, keys))) for each, keys in zip(found, unknown, strict=True)):
            raise
    for parent, key in [_field(known, keys) for keys in unknown]:
        parent.pop(key, None)
    return adapter.validate_python(known)


def check_values(data: bytes, most: int = MOST_VALUES) -> None:
    """Raise ValidationError if a JSON text has more than `most` values; the contents of strings do not count."""
    if (count := _values(data)) > most:
        count = _values(_STRING.sub(b"", data))
    if count > most:
        text = f"it has {count:,} values, and the limit is {most:,}: send less at once"
        problem = PydanticCustomError("too_many_values", "{text}", {"text": text})
        raise ValidationError.from_exception_data("JSON", [{"type": problem, "input": None}])


def _values(data: bytes) -> int:
    return 1 + sum(map(data.count, (b",", b"[", b"{")))


@lru_cache(256)
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("type[Any]", kind))


def _field(value: Any, keys: Sequence[str | int]) -> tuple[dict[str, Any], str]:
    """Return the object in JSON data that has the field at the path `keys`, and the name of the field."""
    for key in keys[:-1]:
        value = value[key]
    return value, str(keys[-1])


def _keys(value: Any, place: Sequence[str | int]) -> list[str | int]:
    """Return those elements of a pydantic error path that are keys in the data `value`, without the tags of unions."""
    found: list[str | int] = []
    for key in place:
        if (isinstance(value, dict) and key in value) or (isinstance(value, list | tuple) and isinstance(key, int)):
            found.append(key)
            value = value[key]  # type: ignore[index]
    return found
