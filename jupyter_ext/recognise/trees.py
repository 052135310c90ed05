"""Query and rewrite syntax trees."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

T = TypeVar("T", bound=ast.AST)


def calls(node: ast.AST, method: str) -> Iterator[ast.Call]:
    """Yield the calls of methods with this name, in source order."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Call) and called(each) == method)
    return iter(sorted(found, key=lambda each: (each.lineno, each.col_offset)))


def called(call: ast.expr) -> str:
    """Return the last part of the name that is called, such as `fit` of `trainer.fit()`; "" for other expressions."""
    function = call.func if isinstance(call, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def has_backward(node: ast.AST) -> bool:
    """Return True if a syntax node contains a call of `backward`."""
    return any(calls(node, "backward"))


def names(node: ast.AST) -> set[str]:
    """Return the names of variables that a syntax node reads."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def binds(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns, imports or defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {each.asname or each.name.split(".")[0] for each in statement.names}
    return {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def root(node: ast.expr) -> str:
    """Return the variable with which an expression begins: `model` for `model.fc.weight`; "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def changed(node: T, change: Callable[[ast.expr], ast.expr | None]) -> T:
    """Return a copy of a tree in which `change(expression)` replaces expressions, outermost first.

    An expression stays if `change` returns None.
    """

    class _Change(ast.NodeTransformer):
        def visit(self, each: ast.AST) -> ast.AST:
            other = change(each) if isinstance(each, ast.expr) else None
            return self.generic_visit(each) if other is None else other

    return cast("T", _Change().visit(copy.deepcopy(node)))


def without_devices(node: T) -> T:
    """Return a copy of a tree without `.to(device)`, `.cuda()` and `nn.DataParallel(...)`.

    Daylight itself places tensors.
    """

    def here(each: ast.expr) -> ast.expr | None:
        if not isinstance(each, ast.Call):
            return None
        if isinstance(each.func, ast.Attribute) and _moves(each):
            return without_devices(each.func.value)
        if called(each) in ("DataParallel", "DistributedDataParallel") and each.args:
            return without_devices(each.args[0])
        return None

    return changed(node, here)


def _moves(call: ast.Call) -> bool:
    name = called(call)
    if name != "to":
        return name in ("cuda", "cpu") and not isinstance(call.func, ast.Name)
    text = " ".join(ast.unparse(each) for each in [*call.args, *(keyword.value for keyword in call.keywords)])
    return any(word in text.lower() for word in ("device", "cuda", "cpu", "dev"))
