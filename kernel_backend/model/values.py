"""Validate hyperparameters: default values in a signature, and values that must match an annotation."""

from __future__ import annotations

import ast
import difflib
import operator
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from kernel_backend.model.record import FLOAT, Value, not_finite
from kernel_backend.model.syntax import expression_tree

SHORTEST = 3  # letters of an abbreviation whose full name is suggested
DEEPEST = 32  # nesting depth of lists and dictionaries

_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
# Texts that are parsed as values, in upper or lower case.
WORDS: dict[str, Value] = {
    "true": True,
    "false": False,
    "none": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "infinity": float("inf"),
}
_NO_TEXT = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"(?!.*\.\.)[A-Za-z_/][\w./+-]*")
_NAMES = {
    "float": float,
    "int": int,
    "bool": bool,
    "str": str,
    "list": list,
    "List": list,
    "tuple": list,
    "Tuple": list,
    "dict": dict,
    "Dict": dict,
}
_KINDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a dictionary",
}


class TooLarge(ValueError):
    """Error: a number is outside the range that can be stored."""


def literal(node: ast.expr) -> Any:
    """Return the value of a literal expression: number (also `4 * 128`), text, True, False, None, list or tuple.

    Dictionaries of literals with texts as keys count as literals, too. Raises ValueError for any other expression.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
        return _number(node.value) if type(node.value) is int else node.value
    if isinstance(node, ast.List | ast.Tuple):
        return _sequence(node)(literal(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return {_key(key): literal(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _number(literal(node.operand))
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _number(literal(node.left)), _number(literal(node.right))
        if isinstance(node.op, ast.Pow) and abs(right) > 64:
            raise TooLarge("too large a power: a whole number has 64 bits")
        try:
            return _number(_ARITHMETIC[type(node.op)](left, right))
        except ArithmeticError as error:
            raise ValueError(str(error)) from None
    raise ValueError(f"{ast.unparse(node)} is no plain value")


def _sequence(node: ast.List | ast.Tuple) -> type[list[Any]] | type[tuple[Any, ...]]:
    """Return the Python type, list or tuple, that a syntax node stands for."""
    return tuple if isinstance(node, ast.Tuple) else list


def _key(node: ast.expr | None) -> str:
    # Records are sent as JSON, in which keys are texts.
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError(f"{ast.unparse(node) if node else '**'} is no key: a plain dictionary has text for keys")


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    if isinstance(value, int) and value.bit_length() > 1024:
        raise TooLarge("too large a number: a whole number has 64 bits")
    return value


def check_value(value: Any, depth: int = 0) -> None:
    """Raise ValueError, with the reason, if JSON cannot represent a value; `depth` is its level of nesting."""
    if depth > DEEPEST:
        raise ValueError(f"lists and dictionaries within each other go {DEEPEST} deep at most")
    if type(value) is int and not -(2**63) <= value < 2**63:
        shown = f"{value:.3e}" if value.bit_length() <= 1023 else f"a number of {value.bit_length()} bits"
        raise ValueError(f"{shown} does not fit into 64 bits: write it with a decimal point, or as text in quotes")
    if isinstance(value, str) and not _is_text(value):
        raise ValueError(f"{ascii(value)[:100]} is no UTF-8 text")
    if isinstance(value, dict):
        if not_finite(value) is not None:
            raise ValueError(f"{value!r} means the number {value[FLOAT]}: write {value[FLOAT]} alone")
        for key in value:
            check_value(key)
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            check_value(item, depth + 1)


def _is_text(value: str) -> bool:
    return _NO_TEXT.search(value) is None


def as_value(value: Any) -> Value:
    """Return a value with all tuples converted to lists, recursively, as JSON has no tuples."""
    if isinstance(value, dict):
        return {key: as_value(item) for key, item in value.items()}
    return [as_value(item) for item in value] if isinstance(value, list | tuple) else value


def written(value: Value) -> str:
    """Format a value as users write it on a magic line: `0.1`, `true`, `relu`, `'a b'`, `[64, 32]`."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    return repr(value)


def coerce(value: Value, annotation: str | None, default: Value = None) -> Value:
    """Return `value` converted to the type of its annotation, or without one of the default: 1 for a float becomes 1.0.

    Raises ValueError with the expected type (`a number`, `one of 'relu', 'gelu'`) if it cannot be converted.
    """
    kinds = _alternatives(annotation)
    if kinds is None:
        kinds = [] if default is None else _like(default)
    for kind in kinds:
        if type(value) is kind or (type(value) is type(kind) and value == kind):
            return value
    for kind in kinds:
        if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            return float(value)
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
    if kinds:
        raise ValueError(_wanted(kinds, value))
    return value


def _like(default: Value) -> list[Any]:
    # Without an annotation, an integer default means any number: `dropout=0` accepts 0.1.
    return [int, float] if type(default) is int else [type(default)]


def _alternatives(annotation: str | None) -> list[Any] | None:
    """Return the types and `Literal` values that an annotation allows; None if its form is not supported."""
    if annotation is None:
        return None
    try:
        return _kinds(expression_tree(annotation))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _kinds(node: ast.expr) -> list[Any]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _kinds(node.left) + _kinds(node.right)
    if isinstance(node, ast.Constant):
        return _kinds(expression_tree(node.value)) if isinstance(node.value, str) else [literal(node)]
    name = _last_name(node)
    if isinstance(node, ast.Subscript):
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Literal":
            return [literal(item) for item in inside]
        if name in ("Optional", "Union"):
            return [kind for item in inside for kind in _kinds(item)] + ([None] if name == "Optional" else [])
    if name in _NAMES:
        return [_NAMES[name]]
    raise ValueError(f"{ast.unparse(node)} is no type that a hyperparameter can have")


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _wanted(kinds: list[Any], value: Value) -> str:
    values = [kind for kind in kinds if not isinstance(kind, type)]
    types = {kind for kind in kinds if isinstance(kind, type)}
    if float in types:
        types.discard(int)
    words = [word for kind, word in _KINDS.items() if kind in types]
    if len(values) > 1 and not types:
        return f"one of {', '.join(map(repr, values))}{nearest(value, values)}"
    return " or ".join(words + ["none" if kind is None else repr(kind) for kind in values])


def listed(names: Sequence[str], most: int) -> str:
    """Return names as text, the first `most` of them if there are more.

    Examples
    --------
    >>> listed(["lr", "width", "seed"], 2)
    'lr, width and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nearest(name: object, names: Iterable[object]) -> str:
    """Return ` (did you mean width?)` with the one of `names` that is most similar to `name`; "" if none is similar.

    Examples
    --------
    >>> nearest("widht", ["width", "lr"]), nearest("acc", ["loss", "accuracy"]), nearest("a", ["accuracy"])
    (' (did you mean width?)', ' (did you mean accuracy?)', '')
    """
    wanted, small = str(name).lower(), {str(each).lower(): str(each) for each in names}
    found = difflib.get_close_matches(wanted, small, n=1)
    if not found and len(wanted) >= SHORTEST:
        found = [each for each in small if each.startswith(wanted)]
    return f" (did you mean {small[found[0]]}?)" if found else ""


@lru_cache(maxsize=1024)
def cleaned(name: str) -> str:
    """Return the name of a metric as it is compared: in lower case, with `_` for spaces and most signs.

    Examples
    --------
    >>> cleaned("Val Acc"), cleaned("mAP@0.5:0.95")
    ('val_acc', 'map@0.5_0.95')
    """
    kept = (each if each.isalnum() or each in "@/.%-" or _is_mark(each) else " " for each in name.lower())
    return "_".join("".join(kept).split()).strip("_-./")


def _is_mark(character: str) -> bool:
    """Return True for a part of a letter, such as a vowel sign of Hindi."""
    return not character.isascii() and unicodedata.category(character).startswith("M")
