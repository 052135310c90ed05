"""Determine the form of a training definition (such as functions, plain or lightning) from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from kernel_backend.definition.aliases import role_of
from kernel_backend.definition.command.choice import own_process
from kernel_backend.definition.command_line import command_of
from kernel_backend.definition.contract import REQUIRED, Form
from kernel_backend.definition.keras.cell import is_keras
from kernel_backend.definition.keras.fit import keras_fit
from kernel_backend.definition.lightning.cell import is_lightning
from kernel_backend.definition.plain import is_plain
from kernel_backend.definition.script.definition import is_script
from kernel_backend.definition.trainer.cell import is_trainer
from kernel_backend.definition.unused import names_used
from kernel_backend.model.syntax import FunctionNode

TRAIN = "train"  # the function that contains a user's own loop
RUN = "run"  # its first parameter, the object through which it restores, iterates and reports


def form_of(tree: ast.Module, roles_from: int, modules: Mapping[str, ast.Module] = MappingProxyType({})) -> Form:
    """Return the form of a training definition; the submitted cell begins at line `roles_from`.

    Forms are tried in this order: command, plain, loop, trainer, lightning, keras, functions, script. The program of a
    command has the form script if Daylight runs its training loop. If a cell with a LightningModule defines functions
    `model` and `loss`, its form is functions. A cell with all functions that the form "functions" requires has that
    form; if one is missing, or if the cell calls them itself, a training loop makes it a script. The loop may be in one
    of the project's `modules`.
    """
    own = [node for node in tree.body if node.lineno >= roles_from]
    command = command_of(tree)
    if command is not None:
        return "script" if own_process(tree, command, modules) is None else "command"
    if is_plain(tree):
        return "plain"
    if any(_is_train(node) for node in own):
        return "loop"
    if is_trainer(tree, roles_from):
        return "trainer"
    names = {node.name for node in own if isinstance(node, FunctionNode)}
    if is_lightning(tree, roles_from) and not names >= {"model", "loss"}:
        return "lightning"
    if is_keras(tree, roles_from) or keras_fit(tree, roles_from) is not None:
        return "keras"
    # A function that the cell's own code calls is a helper of its training loop.
    roles = {role_of(name) or name for name in names - names_used(tree)}
    return "script" if not roles >= set(REQUIRED) and is_script(tree, roles_from, modules) else "functions"


def _is_train(node: ast.stmt) -> bool:
    """Return True if a statement defines a function `train` whose first parameter is `run`."""
    if not isinstance(node, FunctionNode) or node.name != TRAIN:
        return False
    first = [*node.args.posonlyargs, *node.args.args][:1]
    return [each.arg for each in first] == [RUN]
