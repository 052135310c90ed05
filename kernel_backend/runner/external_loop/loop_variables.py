"""Find the local variables that a user's `train(run)` carries from step to step, which no checkpoint holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType

from torch import nn

from kernel_backend.runner.determinism.state_between_calls import (
    changed_attributes,
    changes_in_place,
    source_tree,
)

_ITERATIONS = frozenset({"epochs", "steps", "loader"})


def carried_variables(train: FunctionType) -> list[str]:
    """Return the local variables that each step takes over from the one before, without those that are registered.

    They are made above a loop over `run.epochs`, `run.steps` or `run.loader`, and read and then changed within it:
    numbers and tensors that are assigned anew, lists and dicts that are filled, and objects of the user's classes.
    """
    tree = source_tree(train)
    registered = {
        each.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "restore"
        for each in ast.walk(call)
        if isinstance(each, ast.Name)
    }
    classes = {name: each for name, each in train.__globals__.items() if isinstance(each, type)}
    found: dict[str, None] = {}
    for loop in _training_loops(tree):
        made = dict(_made_above(tree, loop))
        events = _Events(loop.body)
        for name in made.keys() - registered - events.inner:
            if name in events.carried or (name in events.read and _keeps(classes.get(made[name] or ""))):
                found[name] = None
    return sorted(found)


def _keeps(kind: type | None) -> bool:
    return kind is not None and not issubclass(kind, nn.Module) and bool(changed_attributes(kind))


def _training_loops(tree: ast.AST) -> Iterator[ast.For]:
    """Yield the loops at whose ends checkpoints are saved: that over epochs, and the outermost one within it."""
    names = {
        target.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign) and _iterates(each.value, set())
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, within = waiting.pop()
        if isinstance(node, ast.For) and (kind := _iterates(node.iter, names)):
            yield node
            if kind != "epochs" or within:
                continue
            within = True
        waiting += ((each, within) for each in ast.iter_child_nodes(node))


def _iterates(expression: ast.expr, names: set[str]) -> str | None:
    """Return the method of `run` over whose items an expression iterates; None for another one, and a validation."""
    for each in ast.walk(expression):
        if isinstance(each, ast.Name) and each.id in names:
            return "loader"
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _ITERATIONS:
            return None if any(option.arg == "validation" for option in each.keywords) else each.func.attr
    return None


def _made_above(tree: ast.AST, loop: ast.For) -> Iterator[tuple[str, str | None]]:
    """Yield the variables that are assigned above a loop, each with the name of the class that it is made of."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and each.lineno < loop.lineno:
            made = each.value.func if isinstance(each.value, ast.Call) else None
            kind = made.id if isinstance(made, ast.Name) else None
            for target in each.targets:
                yield from ((name.id, kind) for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(each, ast.AnnAssign) and each.lineno < loop.lineno and isinstance(each.target, ast.Name):
            yield each.target.id, None


class _Events(ast.NodeVisitor):
    """Reads and changes of variables in the body of a loop, in the order in which Python does them."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.read: set[str] = set()
        self.carried: set[str] = set()  # changed after it was read
        self.inner: set[str] = set()  # variables of comprehensions and functions within the loop
        self._anew: set[str] = set()  # assigned before anything read it
        for each in body:
            self.visit(each)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.read |= {node.id} - self._anew
        elif node.id in self.read:
            self.carried.add(node.id)
        else:
            self._anew.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for each in node.targets:
            self.visit(each)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            self.read |= {node.target.id} - self._anew
        self.visit(node.target)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        for each in (*node.body, *node.orelse):
            self.visit(each)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            self._filled(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and changes_in_place(node.func.attr):
            self._filled(node.func.value)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.inner |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.inner.add(node.arg)

    def _filled(self, container: ast.expr) -> None:
        if isinstance(container, ast.Name) and container.id not in self._anew:
            self.carried.add(container.id)
