"""What a person writes after the options: `lr=1e-2 width=64 act=relu`."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.values import as_value, literal

_WORDS: dict[str, Value] = {
    "true": True,
    "false": False,
    "none": None,
    "nan": float("nan"),
    "inf": float("inf"),
}
_RANGE = re.compile(r"[^'\"\[(]*,.*|[^/'\"\[(]+\.\.[^/]+|.+:(log|int)")


def parse_assignments(tokens: Iterable[str]) -> dict[str, Value]:
    """Hyperparameters by name: numbers, true and false, none, lists, and anything else as text.

    Raises InvalidRequest with the offending token: no `=`, no name, no value, a name twice, or a range.
    """
    values: dict[str, Value] = {}
    for token in tokens:
        name, value = _assignment(token)
        if name in values:
            raise InvalidRequest(f"{token!r}: {name} is given twice")
        values[name] = value
    return values


def _assignment(token: str) -> tuple[str, Value]:
    name, equals, text = token.partition("=")
    if not equals:
        raise InvalidRequest(f"{token!r} is neither an option nor a hyperparameter: write name=value")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidRequest(
            f"{token!r}: {name!r} is no name of a hyperparameter; write name=value, without spaces around ="
        )
    if not text:
        raise InvalidRequest(f"{token!r} has no value: write {name}=1e-2, or {name}='' for an empty text")
    return name, parse_value(text, token)


def parse_value(text: str, token: str | None = None) -> Value:
    """One value as it is written on the line; raises InvalidRequest for a range or a broken list."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text in ("-inf", "+inf"):
        return float(text)
    if _RANGE.fullmatch(text):
        raise InvalidRequest(f"{token or text!r}: ranges belong to a search, which this version does not have")
    try:
        return as_value(literal(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError):
        return _text(text, token or text)


def _text(text: str, token: str) -> str:
    if text[0] in "[(":
        raise InvalidRequest(f"{token!r}: this is no list of plain values; write [64,32] or ['relu','gelu']")
    quoted = text[0] in "'\"" and text[-1] == text[0] and len(text) > 1
    return text[1:-1] if quoted else text
