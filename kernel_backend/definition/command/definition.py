"""Define the hyperparameters of a command: one for each of its placeholders."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.command.choice import own_process
from kernel_backend.definition.command_line import command_of
from kernel_backend.definition.contract import Definition, Parameter


def command_definition(tree: ast.Module, modules: Mapping[str, ast.Module]) -> Definition:
    """Return the training definition of a module whose last line holds a shell command."""
    command = command_of(tree)
    assert command is not None
    line = tree.body[-1].lineno
    return Definition(
        form="command",
        roles=(),
        functions={},
        hyperparameters={
            name: Parameter(name=name, kind="hyperparameter", required=True, line=line) for name in command.names
        },
        settings={"form": "command"},
        about=own_process(tree, command, modules) or str(command),
        command=command,
    )
