"""Rewrite a cell that calls Keras' `fit` as a training definition that consists of functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_ext.recognise.cell import about, function, statement_text
from jupyter_ext.recognise.trees import binds, called, calls, names
from kernel_backend.definition.contract import ROLES

_ARGUMENTS = (
    "x", "y", "batch_size", "epochs", "verbose", "callbacks", "validation_split", "validation_data", "shuffle",
    "class_weight", "sample_weight",
)  # fmt: skip
_WRITTEN = frozenset(_ARGUMENTS) - {"class_weight", "shuffle"}


@dataclass(frozen=True)
class Fit:
    """Top-level call `model.fit(...)` of a compiled Keras model in a cell."""

    call: ast.Call
    model: str  # the name of the model
    setup: tuple[ast.stmt, ...]  # statements before it, including those of earlier cells


def first_fit(body: Sequence[ast.stmt], roles_from: int) -> Fit | None:
    """Return the first `fit` call at the submitted cell's top level, of a Keras model that was compiled before.

    `body` has the statements of the captured module, in which the submitted cell begins at line `roles_from`. Returns
    None if there is no such call, or if Keras is not imported.
    """
    if not any(name.split(".")[0] in ("keras", "tensorflow") for each in body for name in _imported(each)):
        return None
    for place, each in enumerate(body):
        call = each.value if isinstance(each, ast.Expr | ast.Assign) else None
        if each.lineno < roles_from or not isinstance(call, ast.Call) or called(call) != "fit":
            continue
        model = call.func.value if isinstance(call.func, ast.Attribute) else None
        setup = tuple(body[:place])
        if isinstance(model, ast.Name) and any(_compiles(before, model.id) for before in setup):
            return Fit(call, model.id, setup)
    return None


def options(fit: Fit) -> list[str]:
    """Return command-line options for the arguments of `fit`; `--epochs` is always set, as Keras' default is 1."""
    given = _given(fit.call) or {}
    found = {"--epochs": given.get("epochs", ast.Constant(1)), "--batch-size": given.get("batch_size")}
    values = {flag: _literal(value, fit.setup) for flag, value in found.items() if value is not None}
    return [word for flag, value in values.items() for word in (flag, value)]


def cell(fit: Fit, roles_from: int, source: str) -> str | None:
    """Return the source of a cell of functions that replaces the call of `fit`; None if the cell cannot be rewritten.

    `source` is the captured module, in which the submitted cell begins at line `roles_from`. Statements that create the
    model become the function `model`; other statements do not change. The cell cannot be rewritten if one of these
    other statements uses the model, or if `fit` has arguments without an equivalent.
    """
    given = _given(fit.call)
    if given is None or "x" not in given or not given.keys() <= _WRITTEN:
        return None
    of_model: list[ast.stmt] = about(fit.model, fit.setup)
    functions = [
        function("model", [*map(ast.unparse, of_model), f"return {fit.model}"]),
        *_data(given),
    ]
    moved: list[ast.stmt] = [*of_model, *(each for each in fit.setup if _is_shown(each, fit.model))]
    if "callbacks" in given:
        value, assigned = _assigned(given["callbacks"], fit.setup)
        functions.append(function("callbacks", [f"return {ast.unparse(value)}"]))
        moved += assigned
    kept = [each for each in fit.setup if each.lineno >= roles_from and each not in moved]
    if any(fit.model in names(each) or binds(each) & set(ROLES) for each in kept):
        return None
    return "\n".join([*(statement_text(each, source) for each in kept), *([""] if kept else []), *functions]) + "\n"


def _data(given: Mapping[str, ast.expr]) -> list[str]:
    """Return the source of the functions `train_data` and `validation_data`, split as Keras splits the data.

    `given` has the arguments of `fit` by name. Without validation data there is only `train_data`.
    """
    parts = [ast.unparse(given[name]) for name in ("x", "y", "sample_weight") if name in given]
    if "validation_data" in given:
        return [
            function("train_data", [f"return {', '.join(parts)}"]),
            function("validation_data", [f"return {ast.unparse(given['validation_data'])}"]),
        ]
    if "validation_split" not in given:
        return [function("train_data", [f"return {', '.join(parts)}"])]
    count = f"count = int(len({parts[0]}) * (1 - {ast.unparse(given['validation_split'])}))"
    first, last = (", ".join(f"{each}[{where}]" for each in parts) for where in (":count", "count:"))
    return [
        function("train_data", [count, f"return {first}"]),
        function("validation_data", [count, f"return {last}"]),
    ]


def _given(call: ast.Call) -> dict[str, ast.expr] | None:
    """Return the arguments of `fit` by name; None if some are unpacked by `*` or `**`."""
    if any(isinstance(each, ast.Starred) for each in call.args) or len(call.args) > len(_ARGUMENTS):
        return None
    given = dict(zip(_ARGUMENTS, call.args, strict=False))
    for each in call.keywords:
        if each.arg is None:
            return None
        given[each.arg] = each.value
    if ast.unparse(given.get("shuffle", ast.Constant(True))) == "True":
        given.pop("shuffle", None)
    return {name: each for name, each in given.items() if ast.unparse(each) != "None"}


def _assigned(value: ast.expr, setup: Sequence[ast.stmt]) -> tuple[ast.expr, list[ast.stmt]]:
    """Return the expression behind a variable, with the statement that assigns it, if `setup` has exactly one.

    For example, for `callbacks` after `callbacks = [Stop()]` it is `[Stop()]`. Otherwise `value` itself is returned,
    with an empty list. `setup` has the statements before the call of `fit`.
    """
    if isinstance(value, ast.Name):
        found = [each for each in setup if value.id in binds(each)]
        if len(found) == 1 and isinstance(found[0], ast.Assign) and isinstance(found[0].targets[0], ast.Name):
            return found[0].value, [found[0]]
    return value, []


def _literal(value: ast.expr, setup: Sequence[ast.stmt]) -> str:
    """Return an argument of `fit` as the text of an option's value, such as `3` or `{epochs}`.

    It is the constant if the expression `value` is one, or is a variable to which `setup` assigns one; otherwise the
    expression in braces, which the notebook evaluates.
    """
    number, _ = _assigned(value, setup)
    return str(number.value) if isinstance(number, ast.Constant) else f"{{{ast.unparse(value)}}}"


def _compiles(statement: ast.stmt, model: str) -> bool:
    found = (each.func for each in calls(statement, "compile") if isinstance(each.func, ast.Attribute))
    return any(isinstance(each.value, ast.Name) and each.value.id == model for each in found)


def _is_shown(statement: ast.stmt, model: str) -> bool:
    """Return True if a statement only displays the model: `model.summary()`."""
    return isinstance(statement, ast.Expr) and ast.unparse(statement) == f"{model}.summary()"


def _imported(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [statement.module or ""]
    return [each.name for each in statement.names] if isinstance(statement, ast.Import) else []
