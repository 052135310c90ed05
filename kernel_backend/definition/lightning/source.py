"""Rewrite a Lightning cell so that importing it records the Trainer and `fit` instead of training."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, TypeVar

from kernel_backend.definition.lightning.calls import FIT
from kernel_backend.definition.lightning.cell import LightningCell, called, is_main, lightning_cell

T = TypeVar("T", bound=ast.AST)
_CALLS = "_daylight_calls"
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORT = f"import kernel_backend.definition.lightning.calls as {_CALLS}"


def importable(tree: ast.Module, roles_from: int, values: Mapping[str, Mapping[str, Any]]) -> ast.Module:
    """Return the module up to its call of `fit`, rewritten so that its calls of Trainer and `fit` are only recorded.

    `values` are the hyperparameters of the cell's classes, by class. Line numbers do not change.
    """
    cell = lightning_cell(tree, roles_from)
    body = [_inlined(each) for each in tree.body]
    module = ast.Module([each for part in body for each in part], tree.type_ignores)
    module.body = _until_fit(module.body, cell)
    _Recorded(cell, values).visit(module)
    (line,) = ast.parse(_IMPORT).body
    place = sum(map(_is_head, module.body[: _head(module.body)]))
    line.lineno = line.end_lineno = module.body[place].lineno if place < len(module.body) else 1
    module.body.insert(place, line)
    return ast.fix_missing_locations(module)


def defined_only(source: str) -> str:
    """Return a cell's source without its Trainer, `fit` and all code after it.

    A notebook runs this in place of the cell when a job does the training.
    """
    return ast.unparse(ast.Module([each for each in _until_training(source) if not _makes(each)], []))


def makes_trainer(source: str) -> str:
    """Return the statements of a cell that create its Trainer, above the one that trains; "" if there are none.

    A notebook runs these once the job has trained, to have a Trainer with the job's results.
    """
    return ast.unparse(ast.Module([each for each in _until_training(source) if _makes(each)], []))


def _until_training(source: str) -> list[ast.stmt]:
    return list(takewhile(lambda each: not _may_fit(each), ast.parse(source).body))


def _makes(statement: ast.stmt) -> bool:
    """Return True if a statement creates a Trainer."""
    defines = isinstance(statement, _DEFINING)
    return not defines and any(called(call).endswith("Trainer") for call in _calls_in(statement))


def training_line(tree: ast.Module) -> int | None:
    """Return the first line of a cell that its notebook must not run: that of its `fit` call; None without one."""
    return next((each.lineno for each in tree.body if _may_fit(each)), None)


def _may_fit(statement: ast.stmt) -> bool:
    """Return True if a statement may train: it calls something named `fit`, or is `if __name__ == "__main__":`.

    Any `fit` counts, since the Trainer may have been created in an earlier cell or in a function.
    """
    if isinstance(statement, _DEFINING):
        return False
    return is_main(statement) or any(called(call) == "fit" for call in _calls_in(statement))


def _calls_in(statement: ast.stmt) -> list[ast.Call]:
    return [node for node in ast.walk(statement) if isinstance(node, ast.Call)]


def _inlined(statement: ast.stmt) -> list[ast.stmt]:
    return statement.body if isinstance(statement, ast.If) and is_main(statement) else [statement]


def _until_fit(body: list[ast.stmt], cell: LightningCell) -> list[ast.stmt]:
    for place, each in enumerate(body):
        if cell.fit is not None and any(node is cell.fit for node in ast.walk(each)):
            return body[: place + 1]
    return body


def _head(body: list[ast.stmt]) -> int:
    """Return how many leading statements must stay first: the docstring and `from __future__` imports."""
    return next((place for place, each in enumerate(body) if not _is_head(each)), len(body))


def _is_head(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Recorded(ast.NodeTransformer):
    """Rewriter of a syntax tree that replaces calls of the Trainer, of `fit`, and of the cell's Lightning classes.

    The new calls are of functions in `calls.py`, which record the arguments.
    """

    def __init__(self, cell: LightningCell, values: Mapping[str, Mapping[str, Any]]) -> None:
        self._cell, self._values = cell, values

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Return the recording call that replaces a call of the Trainer, `fit` or module; other calls unchanged."""
        is_fit, is_trainer = node is self._cell.fit, node is self._cell.trainer
        is_made = any(node is each for each in self._cell.made.values())
        name = called(node)
        self.generic_visit(node)
        if is_trainer:
            return _at(node, ast.Call(_recorder("trainer"), node.args, node.keywords))
        if is_fit:
            assert isinstance(node.func, ast.Attribute)
            return _at(node, ast.Call(_recorder("fit"), [node.func.value, *node.args], node.keywords))
        if is_made and name in self._values:
            values = ast.parse(repr(dict(self._values[name])), mode="eval").body
            return _at(node, ast.Call(_recorder("made"), [node.func, values, *node.args], node.keywords))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Replace a statement that only calls `fit` by an assignment of the recorded call to the variable `FIT`.

        Other statements stay.
        """
        is_fit = node.value is self._cell.fit
        self.generic_visit(node)
        return _at(node, ast.Assign([ast.Name(FIT, ast.Store())], node.value)) if is_fit else node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Replace an assignment of the result of `fit` by an assignment of the recorded call to the variable `FIT`.

        Other assignments stay.
        """
        is_fit = node.value is self._cell.fit
        self.generic_visit(node)
        return _at(node, ast.Assign([ast.Name(FIT, ast.Store())], node.value)) if is_fit else node


def _recorder(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(_CALLS, ast.Load()), name, ast.Load())


def _at(node: ast.AST, new: T) -> T:
    return ast.copy_location(new, node)
