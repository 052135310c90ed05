"""Define the base class of records: immutable, validated, and equal in Python, SQL and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails

from kernel_backend.errors import InvalidRequest

MOST_PROBLEMS = 1000
_WITHOUT_VALUE = ("missing", "json_invalid", "too_many_values")  # kinds of problems that are about no value
_Record = TypeVar("_Record", bound="Record")

FLOAT = "float"  # key of a float that JSON cannot express: {"float": "inf"}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_wire(value: Any) -> Any:
    """Convert a value to JSON; infinity becomes `{"float": "inf"}`, which cannot be confused with a text."""
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: str(value)}
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items()}
    return [to_wire(item) for item in value] if isinstance(value, list | tuple) else value


def from_wire(value: Any) -> Any:
    """Convert JSON made by `to_wire` back to the original value."""
    if isinstance(value, dict):
        return not_finite(value) or {key: from_wire(item) for key, item in value.items()}
    return [from_wire(item) for item in value] if isinstance(value, list | tuple) else value


def not_finite(value: dict[str, Any]) -> float | None:
    """Return the infinity or NaN that an object such as `{"float": "inf"}` encodes; None for any other object."""
    text = value.get(FLOAT) if len(value) == 1 else None
    return _NOT_FINITE.get(text) if isinstance(text, str) else None


_Wire = PlainSerializer(to_wire, when_used="json")


def _sent_as(**schema: Any) -> WithJsonSchema:
    """Return an annotation with the JSON schema of the serialised field, which pydantic cannot derive itself."""
    return WithJsonSchema(schema, mode="serialization")


# A hyperparameter's value, as users can write it after `name=`.
Value = (
    bool
    | int
    | Annotated[float, _Wire, _sent_as(type="number")]  # infinity is sent as an object
    | str
    | None
    | Annotated[list[Any], AfterValidator(from_wire), _Wire, _sent_as(type="array")]
    | Annotated[dict[str, Any], AfterValidator(from_wire), _Wire, _sent_as(type="object", additionalProperties=True)]
)


def _as_spelled(value: Any, info: ValidationInfo) -> Any:
    """Return a field's value; raises ValueError for a JSON number such as 1e309 that overflows to infinity."""
    if info.mode == "json" and _holds_infinity(value):
        raise ValueError('a number is beyond 1.8e308; infinity is written {"float": "inf"}')
    return value


def _holds_infinity(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_infinity, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


# Hyperparameters as a user requests them.
GivenParams = Annotated[dict[str, Value], BeforeValidator(_as_spelled)]


class Record(BaseModel):
    """Immutable record. Unknown fields are refused; NaN and infinity become JSON strings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="strings",
        json_schema_serialization_defaults_required=True,  # serialised records have every field
    )

    def json_text(self) -> str:
        """Return the record as the API sends it: JSON text."""
        return self.model_dump_json()

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values, ready for `json.dumps`."""
        # Not `model_dump(mode="json")`: that leaves NaN and infinity as floats, which strict JSON refuses.
        return dict(json.loads(self.json_text()))


def json_text(value: object) -> str:
    """Return JSON of a value that may contain records; each is serialised once.

    Raises ValueError for NaN and infinity outside of records, TypeError for what is no JSON.
    """
    match value:
        case Record():
            return value.json_text()
        case dict():
            return "{" + ",".join(f"{json.dumps(str(key))}:{json_text(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value, allow_nan=False)


def checked(kind: type[_Record], **fields: Any) -> _Record:
    """Return a record of class `kind` with these fields.

    Raises InvalidRequest, which names each invalid field and value.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        raise InvalidRequest(problem_text(error)) from None


def problem_text(error: ValidationError) -> str:
    """Describe the first five invalid fields of a record: `config.slots: Input should be ... 1, not 0`."""
    parts = []
    for found in first_problems(error)[:5]:
        where = ".".join(str(part) for part in found["loc"]) or "body"
        value = "" if found["type"] in _WITHOUT_VALUE else f", not {ascii(found['input'])[:100]}"
        parts.append(f"{where}: {found['msg']}{value}")
    return "; ".join(parts) or f"body: {error.error_count():,} values are not what they must be"


def first_problems(error: ValidationError) -> list[ErrorDetails]:
    """Return the invalid fields of a record; none if there are more than `MOST_PROBLEMS`, whose list would be large."""
    return error.errors(include_url=False) if error.error_count() <= MOST_PROBLEMS else []


def truths_for_numbers(sent: Any, taken: Any, place: str = "") -> Iterator[str]:
    """Yield the places in JSON that was sent where true or false was taken as the number 1 or 0.

    Examples
    --------
    >>> list(truths_for_numbers({"steps": True, "of": [False], "dry": True}, {"steps": 1, "of": [0], "dry": True}))
    ['steps', 'of.0']
    """
    if isinstance(sent, bool):
        if isinstance(taken, int | float) and not isinstance(taken, bool):
            yield place
    elif isinstance(sent, list) and isinstance(taken, list | tuple):
        for number, (one, other) in enumerate(zip(sent, taken, strict=False)):
            yield from truths_for_numbers(one, other, f"{place}.{number}".lstrip("."))
    elif isinstance(sent, dict):
        held = taken if isinstance(taken, dict) else getattr(taken, "__dict__", {})
        for name in filter(held.__contains__, sent):
            yield from truths_for_numbers(sent[name], held[name], f"{place}.{name}".lstrip("."))
