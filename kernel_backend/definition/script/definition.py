"""Build the definition of a program with its own training loop: its loops, hyperparameters and number of epochs."""

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
    """Return True if running the code from line `roles_from` on reaches a training loop.

    Of the code above, only definitions and imports count: a loop in an earlier cell does not make this cell a training.
    """
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    own = [each for each in tree.body if each.lineno >= roles_from or isinstance(each, defined)]
    return bool(training_loops(ast.Module(own, []), modules))


def script_definition(tree: ast.Module, modules: Mapping[str, ast.Module]) -> Definition:
    """Return the definition of a program; its training loops may be in `modules`."""
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
    """Write a trial's hyperparameters and number of epochs into a program, if they differ from its own.

    The tree is modified in place, without changing line numbers.
    """
    found = constants(tree)
    long = length(tree, training_loops(tree, modules), found.places)
    if long.put is not None and long.count != epochs:
        long.put(expression(epochs, line=1))
    for name, place in found.places.items():
        if name in params and name != long.name:
            place.write(params[name])
    return ast.fix_missing_locations(tree)
