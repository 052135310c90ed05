"""Inline functions that train, so that a program is one list of statements."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence

from jupyter_ext.recognise.trees import called, flat, has_backward, replaced

_DEEPEST = 4


def inlined(body: Sequence[ast.stmt], functions: Mapping[str, ast.FunctionDef], depth: int = 0) -> list[ast.stmt]:
    """Return the statements with calls replaced by function bodies that train or loop."""
    result: list[ast.stmt] = []
    for statement in flat(body):
        function = functions.get(called(_value(statement))) if _is_plain(statement) else None
        if function is not None and depth < _DEEPEST and _has_loop(function):
            result += inlined(_body(statement, function), functions, depth + 1)
        elif isinstance(statement, ast.For | ast.While):
            other = copy.copy(statement)
            other.body = inlined(statement.body, functions, depth)
            result.append(other)
        else:
            result.append(statement)
    return result


def _is_plain(statement: ast.stmt) -> bool:
    return isinstance(_value(statement), ast.Call) and isinstance(_value(statement).func, ast.Name)  # type: ignore[attr-defined]


def _value(statement: ast.stmt) -> ast.expr:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    return value if value is not None else ast.Constant(None)


def _has_loop(function: ast.FunctionDef) -> bool:
    return has_backward(function) or any(isinstance(each, ast.For | ast.While) for each in ast.walk(function))


def _body(statement: ast.stmt, function: ast.FunctionDef) -> list[ast.stmt]:
    """Return the function's statements, preceded by assignments of its arguments."""
    call, arguments = _value(statement), function.args
    assert isinstance(call, ast.Call)
    given = dict(zip((each.arg for each in arguments.args), call.args, strict=False))
    given |= {each.arg: each.value for each in call.keywords if each.arg}
    with_default = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    defaults = {each.arg: value for each, value in zip(with_default, arguments.defaults, strict=True)}
    values = {**defaults, **given}
    plain = {
        name: value for name, value in values.items() if isinstance(value, ast.Name | ast.Constant | ast.Attribute)
    }
    told = [_assigned(name, value, statement) for name, value in values.items() if name not in plain]
    return [*told, *(replaced(each, plain) for each in function.body if not isinstance(each, ast.Return))]


def _assigned(name: str, value: ast.expr, at: ast.stmt) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], value)
    return ast.fix_missing_locations(ast.copy_location(made, at))
