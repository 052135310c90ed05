"""Name the losses of a program that has several, such as `loss_d.backward()` and `loss_g.backward()`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

_BACKWARD = "backward"


def loss_names(trees: Mapping[str, ast.Module]) -> str | dict[tuple[str, int], str]:
    r"""Return the name of the loss of each `backward()`, by module and line; only "loss" if all names are equal.

    Examples
    --------
    >>> loss_names({"": ast.parse("scaler.scale(total).backward()")})
    'loss'
    >>> loss_names({"": ast.parse("d_loss.backward()\ng_loss.backward()")})
    {('', 1): 'd_loss', ('', 2): 'g_loss'}
    """
    found: dict[tuple[str, int], str] = {}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _BACKWARD:
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    found[module, line] = _named(node.func.value)
    return found if len(set(found.values())) > 1 else "loss"


def _named(value: ast.expr) -> str:
    """Return the name of the variable in a loss expression; "loss" if it has none."""
    if isinstance(value, ast.Attribute):
        return value.attr
    inner = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
    if isinstance(value, ast.Call):  # for scaler.scale(loss) and similar calls: their arguments
        inner = [each.id for argument in value.args for each in ast.walk(argument) if isinstance(each, ast.Name)]
    return inner[0] if inner else "loss"
