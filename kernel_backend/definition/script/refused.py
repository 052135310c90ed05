"""Explain why names in a program are not hyperparameters, and what to change."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from kernel_backend.definition.script.bindings import scopes
from kernel_backend.definition.script.written import Place
from kernel_backend.model.syntax import FunctionNode
from kernel_backend.model.values import literal

_SHOWN = 60  # characters of an expression
_NO_SETTINGS = frozenset({"add_argument", "print", "super"})  # calls whose arguments are not settings


def refusals(tree: ast.Module, places: Mapping[str, Place], twice: Mapping[str, Sequence[Place]]) -> dict[str, str]:
    """Return advice on names that cannot be hyperparameters, by name: why not, and how to change the program.

    `places` has the program's hyperparameters. `twice` has names that could mean several literals in the program, such
    as a variable and an option, with these literals.
    """
    told = (*_of_defaults(tree), *_of_calls(tree), *_of_assignments(tree))
    found = {name: message for name, message in told if name not in places}
    for name, others in twice.items():
        where = " and ".join(f"{each.written} (line {each.line})" for each in others)
        found[name] = f"{name} could be {where}, so that one value cannot be given: rename one of them"
    return found


def _of_assignments(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for scope in scopes(tree):
        for name, value in _assignments(scope.statements):
            lines = scope.bound[name]
            if len(lines) > 1 and _is_literal(value):
                yield (
                    name,
                    f"{name} is assigned in line {lines[0]} and again in line {lines[1]}, so that it is a state of the "
                    "program and no hyperparameter: assign it once, or give the first value a name of its own",
                )
            elif len(lines) == 1 and not _is_literal(value):
                yield (
                    name,
                    f"{name} is computed (line {lines[0]}: {name} = {_short(value)}): give a name that it is computed "
                    f"from, or write {name} = VALUE",
                )


def _assignments(statements: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for each in statements:
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                yield target.id, value


def _of_calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield names of constants in the arguments of calls, as `lr` in `Adam(params, lr=5e-3)`, with advice for each."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] in _NO_SETTINGS:
            continue
        for each in node.keywords:
            if each.arg and _is_literal(each.value):
                name, value, called = each.arg, ast.unparse(each.value), ast.unparse(node.func)[:_SHOWN]
                yield (
                    name,
                    f"{name} stands in a call (line {each.value.lineno}: {called}(..., {name}={value})) and has no "
                    f"name of its own: write {name} = {value} above, and {name}={name} in the call",
                )


def _of_defaults(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield names of constant defaults of functions, as `lr` in `def train(model, lr=1e-3)`, with advice for each."""
    for node in (each for each in ast.walk(tree) if isinstance(each, FunctionNode)):
        named = node.args.args[len(node.args.args) - len(node.args.defaults) :]
        pairs = [
            *zip(named, node.args.defaults, strict=True),
            *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
        ]
        for argument, default in pairs:
            if default is not None and _is_literal(default):
                name, value = argument.arg, ast.unparse(default)
                yield (
                    name,
                    f"{name} is the default of an argument (line {argument.lineno}: def {node.name}(..., "
                    f"{name}={value})): write {name} = {value} at top level, and {name}={name} where {node.name} is "
                    "called",
                )


def _is_literal(node: ast.expr) -> bool:
    try:
        literal(node)
    except ValueError:
        return False
    return True


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
