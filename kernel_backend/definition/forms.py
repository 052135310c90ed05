"""Decide in which form a definition is written, by its syntax tree alone."""

from __future__ import annotations

import ast
from typing import Literal

from kernel_backend.model.syntax import FunctionNode

Form = Literal["functions", "loop"]
TRAIN = "train"  # the function of a user's own loop
RUN = "run"  # its first parameter, the object through which it restores, iterates and reports


def form_of(tree: ast.Module, roles_from: int) -> Form:
    """Return the form of the definition whose submitted cell begins at line `roles_from`.

    Forms are tried in this order: loop, functions.
    """
    own = [node for node in tree.body if node.lineno >= roles_from]
    if any(_is_train(node) for node in own):
        return "loop"
    return "functions"


def _is_train(node: ast.stmt) -> bool:
    """Return whether this is a function `train` whose first parameter is `run`."""
    if not isinstance(node, FunctionNode) or node.name != TRAIN:
        return False
    first = [*node.args.posonlyargs, *node.args.args][:1]
    return [each.arg for each in first] == [RUN]
