"""Merge the hyperparameters of several functions, in which equal names mean the same hyperparameter."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_backend.definition.contract import Function, Parameter
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.record import Value
from kernel_backend.model.values import coerce


def merged(functions: Mapping[str, Function]) -> dict[str, Parameter]:
    """Return the hyperparameters of all functions by name.

    A missing default or annotation is taken from another function.
    """
    merged: dict[str, Parameter] = {}
    owners: dict[str, str] = {}
    for function in sorted(functions.values(), key=lambda each: each.line):
        for new in function.parameters:
            if new.kind != "hyperparameter":
                continue
            old = merged.get(new.name)
            merged[new.name] = _one(old, owners[new.name], new, function.name) if old else new
            if old is None or old.required:
                owners[new.name] = function.name
    return merged


def _one(old: Parameter, owner: str, new: Parameter, function: str) -> Parameter:
    if not (old.required or new.required) and not _same(old.default, new.default):
        raise InvalidDefinition(
            f"{old.name} has two defaults: {old.default!r} in {owner} (line {old.line}) and "
            f"{new.default!r} in {function} (line {new.line}). It is one hyperparameter: make them equal, "
            "leave one out, or rename one",
            line=new.line,
            text=new.name,
        )
    kept = new if old.required and not new.required else old
    return kept.model_copy(update={"annotation": old.annotation or new.annotation})


def _same(one: Value, other: Value) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def with_default(parameter: Parameter, default: Value) -> Parameter:
    """Return the parameter with this default, which is converted to the type of its annotation if possible."""
    try:
        value = coerce(default, parameter.annotation, default)
    except ValueError:  # `width: int = "auto"` is left as written
        value = default
    return parameter.model_copy(update={"default": value})
