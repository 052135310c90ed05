"""Build the definition of a program with its own training loop: its loops, hyperparameters and number of epochs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kernel_backend.definition.command_line import command_of
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.script.arguments import Arguments, arguments
from kernel_backend.definition.script.hyperparameters import constants
from kernel_backend.definition.script.length import Length, length
from kernel_backend.definition.script.loops import TrainingLoop, summary, training_loops
from kernel_backend.definition.script.modules import without_program
from kernel_backend.definition.script.signs import presumed, signs
from kernel_backend.definition.script.written import expression
from kernel_backend.model.record import Value


def is_script(tree: ast.Module, roles_from: int, modules: Mapping[str, ast.Module]) -> bool:
    """Return True if the code from line `roles_from` on reaches a training loop when it runs.

    Of the code above only definitions and imports count: a loop in an earlier cell does not make this cell a training.
    """
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    own = [each for each in tree.body if each.lineno >= roles_from or isinstance(each, defined)]
    return bool(training_loops(ast.Module(own, []), modules))


def script_definition(tree: ast.Module, modules: Mapping[str, ast.Module]) -> Definition:
    """Return the training definition of a program, whose training loops may be in `modules`.

    For the program of a command, the placeholders on its command line are hyperparameters, too.
    """
    command = command_of(tree)
    loops, found = _loops(tree, modules), _found(tree)
    long = _length(tree, loops, found)
    hyperparameters = found.found.parameters
    hyperparameters.pop(long.name, None)
    return Definition(
        form="script",
        roles=(),
        functions={},
        hyperparameters=hyperparameters,
        settings=long.settings,
        about=summary(loops),
        excluded=dict(found.found.refused),
        epochs_name=long.name,
        epochs_fixed=long.why,
        rounds=long.rounds,
        command=command,
    )


class Written(NamedTuple):
    """Program into which a trial's hyperparameters are written, with its command-line arguments."""

    tree: ast.Module
    arguments: list[str]


def with_values(
    tree: ast.Module, modules: Mapping[str, ast.Module], params: Mapping[str, Value], epochs: int
) -> Written:
    """Write a trial's hyperparameters, `params`, and number of epochs into a program's syntax tree, where they differ.

    Placeholders of its command are filled in. The tree is modified in place, without changing line numbers.
    """
    command, found = command_of(tree), _found(tree)
    long = _length(tree, _loops(tree, modules), found)
    if command is not None:
        tree.body.pop()
        values = {**params, long.name: epochs} if long.name in command.names else params
        found.words[:] = command.filled(values, "")[command.arguments :]
    if long.put is not None and long.count != epochs:
        long.put(expression(epochs, line=1))
    for name, place in found.found.places.items():
        if name in params and name != long.name:
            place.write(params[name])
    return Written(ast.fix_missing_locations(tree), [each for each in found.words if each is not None])


def presumption(tree: ast.Module, modules: Mapping[str, ast.Module]) -> str:
    """Return a text on how exactly a program can resume after a restart, estimated from its source before any run."""
    return presumed(signs(tree, _loops(tree, modules), without_program(modules, command_of(tree))))


def _loops(tree: ast.Module, modules: Mapping[str, ast.Module]) -> tuple[TrainingLoop, ...]:
    return training_loops(tree, without_program(modules, command_of(tree)))


def _found(tree: ast.Module) -> Arguments:
    found, command = constants(tree), command_of(tree)
    return Arguments(found, [], {}) if command is None else arguments(tree, found, command)


def _length(tree: ast.Module, loops: Sequence[TrainingLoop], found: Arguments) -> Length:
    return length(tree, loops, {**found.found.places, **found.by_option})
