"""Find the losses of a program: their names, as in `loss_d.backward()`, and what `(loss / 4).backward()` scales."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

_BACKWARD = "backward"
_SCALE = "scale"  # method of a GradScaler


class Loss(NamedTuple):
    """Loss on which a program calls `backward`."""

    name: str  # of its curve
    unscaled: str = ""  # variable that holds the loss before it is scaled for `backward`; "" if it is not scaled


def losses_of(trees: Mapping[str, ast.Module]) -> dict[tuple[str, int], Loss]:
    r"""Return the losses of a program by module and line; nothing if all are plain ones of one name.

    That name is then "loss".

    Examples
    --------
    >>> losses_of({"": ast.parse("total.backward()")})
    {}
    >>> losses_of({"": ast.parse("scaler.scale(total / 4).backward()")})
    {('', 1): Loss(name='loss', unscaled='total')}
    >>> losses_of({"": ast.parse("d_loss.backward()\ng_loss.backward()")})
    {('', 1): Loss(name='d_loss', unscaled=''), ('', 2): Loss(name='g_loss', unscaled='')}
    """
    found: dict[tuple[str, int], Loss] = {}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _BACKWARD:
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    found[module, line] = Loss(_named(node.func.value), _unscaled(node.func.value))
    if len({each.name for each in found.values()}) == 1:
        found = {place: Loss("loss", each.unscaled) for place, each in found.items()}
    return found if set(found.values()) - {Loss("loss")} else {}


def _named(value: ast.expr) -> str:
    """Return the name of the variable in a loss expression; "loss" if it has none."""
    if isinstance(value, ast.Attribute):
        return value.attr
    inner = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
    if isinstance(value, ast.Call):  # for scaler.scale(loss) and similar calls: their arguments
        inner = [each.id for argument in value.args for each in ast.walk(argument) if isinstance(each, ast.Name)]
    return inner[0] if inner else "loss"


def _unscaled(value: ast.expr) -> str:
    """Return the variable that is divided, multiplied by a number or passed to a GradScaler; "" if there is none."""
    inner: ast.expr | None = value
    while inner is not None and not isinstance(inner, ast.Name):
        inner = _inner(inner)
    return inner.id if inner is not None and inner is not value else ""


def _inner(value: ast.expr) -> ast.expr | None:
    """Return what an expression scales; None if it does something else."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return value.left
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return next((a for a, b in _sides(value) if isinstance(b, ast.Constant)), None)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == _SCALE:
        return value.args[0] if len(value.args) == 1 else None
    return None


def _sides(value: ast.BinOp) -> tuple[tuple[ast.expr, ast.expr], tuple[ast.expr, ast.expr]]:
    return (value.left, value.right), (value.right, value.left)
