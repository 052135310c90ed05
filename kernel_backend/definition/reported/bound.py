"""Find the variables and lists in which a program keeps one number per iteration of an outer loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TIMES = frozenset({"time", "perf_counter", "monotonic", "process_time", "now", "default_timer"})


@dataclass(frozen=True)
class Bound:
    """Variable to which each iteration of a loop assigns a number, or list to which each iteration appends one."""

    name: str  # name of the curve
    path: tuple[str, ...]  # path of the value: a variable, then attributes and keys
    appended: bool = False


def bound_in(tree: ast.Module, line: int) -> tuple[Bound, ...]:
    """Return the variables and lists that the loop at `line` assigns or appends to, outside of inner loops.

    Left out are variables whose names mean times, and those to which the loop assigns only constants.

    Examples
    --------
    >>> program = '''for epoch in range(3):
    ...     total = 0.0
    ...     for x, y in loader:
    ...         total += step(x, y)
    ...     val_acc = evaluate()
    ...     history["loss"].append(total / len(loader))
    ... '''
    >>> [each.name for each in bound_in(ast.parse(program), 1)]
    ['val_acc', 'loss']
    """
    loops = (each for each in ast.walk(tree) if isinstance(each, ast.For | ast.While) and each.lineno == line)
    loop = next(loops, None)
    found = {} if loop is None else {each.name: each for each in _of_body(loop.body)}
    return tuple(found.values())


def _of_body(body: Sequence[ast.stmt]) -> Iterator[Bound]:
    for each in body:
        if isinstance(each, ast.If | ast.With | ast.Try):
            for inner in (each.body, getattr(each, "orelse", []), getattr(each, "finalbody", [])):
                yield from _of_body(inner)
        elif isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign) and each.value is not None:
            if not isinstance(each.value, ast.Constant) and not _is_time(each.value):
                for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                    yield from _targets(target)
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            call = each.value
            if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and not _is_time(call):
                path = _path(call.func.value)
                if path:
                    yield Bound("_".join(path[1:] or path).removeprefix("history_"), path, appended=True)


def _targets(target: ast.expr) -> Iterator[Bound]:
    for each in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
        if isinstance(each, ast.Name) and len(each.id) > 1 and not each.id.startswith("_"):
            yield Bound(each.id, (each.id,))


def _path(node: ast.expr) -> tuple[str, ...]:
    """Return the variable, attributes and keys in an expression such as `history["acc"]`; () for other expressions."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        inner = _path(node.value)
        return (*inner, node.attr) if inner else ()
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        inner = _path(node.value)
        return (*inner, node.slice.value) if inner else ()
    return ()


def _is_time(value: ast.expr) -> bool:
    calls = (each.func for each in ast.walk(value) if isinstance(each, ast.Call))
    return any(ast.unparse(each).rpartition(".")[2] in _TIMES for each in calls)
