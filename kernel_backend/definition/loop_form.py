"""Read the definition of a cell with a training loop of its own in a function `train(run, ...)`."""

from __future__ import annotations

import ast
from typing import Any

from kernel_backend.definition.arguments import BEFORE_TRAINING, FoundFunctions, add_function
from kernel_backend.definition.checks import check_prepare
from kernel_backend.definition.contract import Definition, Function
from kernel_backend.definition.merge import merged
from kernel_backend.definition.trainer.within import trainer_within
from kernel_backend.model.syntax import FunctionNode

TRAIN = "train"  # the function that contains a user's own loop
RUN = "run"  # its first parameter, the object through which it restores, iterates and reports


def is_train(node: ast.stmt) -> bool:
    """Return True if a statement defines a function `train` whose first parameter is `run`."""
    if not isinstance(node, FunctionNode) or node.name != TRAIN:
        return False
    first = [*node.args.posonlyargs, *node.args.args][:1]
    return [each.arg for each in first] == [RUN]


def loop_definition(tree: ast.Module, roles_from: int) -> Definition:
    """Return the definition of a cell with a function `train(run, ...)`.

    Its arguments may be results of other functions.
    """
    trainer = trainer_within(tree, RUN)
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    own = [node for node in nodes.values() if node.lineno >= roles_from and node.name in ("prepare", TRAIN)]
    found = FoundFunctions(nodes, {}, (), guesses=False, loop_values=BEFORE_TRAINING, own_defaults=True)
    functions: dict[str, Function] = {}
    for node in own:
        add_function(node.name, found, functions)
    definition = Definition(
        form="loop",
        roles=tuple(node.name for node in sorted(own, key=lambda node: node.lineno)),
        functions=functions,
        hyperparameters=merged(functions),
        settings=_length_of_loop(nodes[TRAIN]) if trainer is None else trainer.settings,
        hints=() if trainer is None else trainer.hints,
        trainer="" if trainer is None else trainer.written,
    )
    if "prepare" in definition.roles:
        check_prepare(definition)
    return definition


def _length_of_loop(node: FunctionNode) -> dict[str, Any]:
    """Return the setting of the number of epochs from the only call `run.epochs(10)` in a loop.

    Returns an empty dictionary if there is not exactly one, or if its argument is no literal.
    """
    calls = [
        each for each in ast.walk(node) if isinstance(each, ast.Call) and ast.unparse(each.func) == f"{RUN}.epochs"
    ]
    values = [each for call in calls for each in (*call.args, *(word.value for word in call.keywords))]
    counts = [each.value for each in values if isinstance(each, ast.Constant)]
    known = len(calls) == 1 and len(counts) == 1 and type(counts[0]) is int and counts[0] > 0
    return {"epochs": counts[0]} if known else {}
