"""Return the definition of a program with a training loop of its own: its loops, hyperparameters and length."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.script.hyperparameters import constants
from kernel_backend.definition.script.length import length
from kernel_backend.definition.script.loops import summary, training_loops
from kernel_backend.definition.script.written import expression
from kernel_backend.model.record import Value


def is_script(tree: ast.Module, roles_from: int, modules: Mapping[str, ast.Module]) -> bool:
    """Return whether running the code from line `roles_from` on comes to a training loop.

    What stands above it only defines: a loop of an earlier cell alone makes no cell a training.
    """
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    own = [each for each in tree.body if each.lineno >= roles_from or isinstance(each, defined)]
    return bool(training_loops(ast.Module(own, []), modules))


def script_definition(tree: ast.Module, modules: Mapping[str, ast.Module]) -> Definition:
    """Return the definition of a program."""
    loops, found = training_loops(tree, modules), constants(tree)
    long = length(tree, loops, found.places)
    hyperparameters = found.parameters
    hyperparameters.pop(long.name, None)
    return Definition(
        form="script",
        roles=(),
        functions={},
        hyperparameters=hyperparameters,
        settings={} if long.count is None else {"epochs": long.count},
        about=summary(loops),
        excluded=found.refused,
        epochs_name=long.name,
        epochs_fixed=long.why,
    )


def with_values(
    tree: ast.Module, modules: Mapping[str, ast.Module], params: Mapping[str, Value], epochs: int
) -> ast.Module:
    """Write a trial's hyperparameters and number of epochs into a program, where they differ from its own.

    The tree is changed in place; its lines keep their numbers.
    """
    found = constants(tree)
    long = length(tree, training_loops(tree, modules), found.places)
    if long.put is not None and long.count != epochs:
        long.put(expression(epochs, line=1))
    for name, place in found.places.items():
        if name in params and name != long.name:
            place.write(params[name])
    return ast.fix_missing_locations(tree)
