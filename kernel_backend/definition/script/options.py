"""Find the argparse options of a program: their names, types and defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernel_backend.definition.script.written import Place
from kernel_backend.model.values import literal

_FLAGS = {"store_true": False, "store_false": True}  # action -> default
_TYPES = frozenset({"float", "int", "str"})
_OTHERS = frozenset({"append", "append_const", "count", "help", "version", "extend", "store_const"})


@dataclass(frozen=True)
class OptionPlace(Place):
    """Option declared with argparse's `add_argument`, whose default value in the source is that of a hyperparameter."""

    flags: tuple[str, ...] = ()
    switch: bool = False  # it takes no value


def options(tree: ast.Module) -> Iterator[OptionPlace]:
    """Yield each argparse option with a literal default or none, such as `add_argument("--lr", type=float)`."""
    for call in _calls(tree):
        place = _option(call)
        if place is not None:
            yield place


def flags_of(tree: ast.Module) -> set[str]:
    """Return the flags, such as `--lr`, of all options, including those that are no hyperparameters."""
    return {flag for call in _calls(tree) for flag in _texts(call) if flag.startswith("-")}


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            yield node


def _texts(call: ast.Call) -> list[str]:
    return [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _option(call: ast.Call) -> OptionPlace | None:
    given = {each.arg: each for each in call.keywords if each.arg}
    flags = _texts(call)
    action = _text(given.get("action"))
    named = [each for each in flags if each.startswith("-")]
    if not named or len(flags) != len(call.args) or action in _OTHERS or "nargs" in given:
        return None  # argparse does not use defaults of positional arguments
    name = _text(given.get("dest")) or next((each for each in named if each.startswith("--")), named[0])
    try:
        default = literal(given["default"].value) if "default" in given else _FLAGS.get(action)
    except ValueError:
        return None
    required = "required" in given and "default" not in given

    def put(value: ast.expr) -> None:
        others = [each for each in call.keywords if each.arg not in ("default", "required")]
        call.keywords = [*others, ast.keyword("default", value)]

    return OptionPlace(
        name=name.lstrip("-").replace("-", "_"),
        line=call.lineno,
        put=put,
        default=default,
        annotation=_annotation(given, default, required),
        written=named[-1],
        required=required,
        flags=tuple(named),
        switch="action" in given and action != "store",
    )


def _annotation(given: dict[str, ast.keyword], default: Any, required: bool) -> str | None:
    """Return the type of an option as an annotation, such as `float`, from its `choices` or its `type`.

    Returns None if it is unknown. `given` has the keyword arguments of `add_argument` by name. An option that may stay
    None has ` | None` added.
    """
    optional = " | None" if default is None and not required else ""
    if "choices" in given:
        try:
            choices = literal(given["choices"].value)
        except ValueError:
            choices = None
        if isinstance(choices, list | tuple) and choices:
            return f"Literal[{', '.join(map(repr, choices))}]{optional}"
    kind = given["type"].value if "type" in given else None
    if isinstance(kind, ast.Name) and kind.id in _TYPES:
        return f"{kind.id}{optional}"
    return f"str{optional}" if kind is None and isinstance(default, str | None) and "action" not in given else None


def _text(keyword: ast.keyword | None) -> str:
    value = keyword.value if keyword is not None else None
    return str(value.value) if isinstance(value, ast.Constant) else ""
