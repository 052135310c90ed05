"""Read the definition of a cell that uses a trained model: `predict_data()` or `evaluate_data()`, and what it adds."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from kernel_backend.definition.arguments import BEFORE_TRAINING, FoundFunctions, add_function
from kernel_backend.definition.contract import REQUIRED, Definition, Function, Parameter
from kernel_backend.definition.merge import merged
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.record import Value
from kernel_backend.model.syntax import FunctionNode

PREDICT_DATA, PREDICT, POST = "predict_data", "predict", "post"
EVALUATE_DATA, EVALUATE = "evaluate_data", "evaluate"
ON_BAD, SHARD_ROWS = "on_bad", "shard_rows"  # hyperparameters that every prediction has
# Hyperparameters of every evaluation: the column of a table with the targets; the checkpoint, of several, as 12.1@500.
TARGET, CHECKPOINT = "target", "checkpoint"
BATCH_SIZE = 256  # rows, unless --batch-size sets another


class UseOfModel(NamedTuple):
    """Use of a trained model: its form, the functions of its cell, and its own hyperparameters.

    `data` returns the rows; `takes` has other functions that a cell may define, and how each is called.
    """

    form: str
    data: str
    takes: Mapping[str, str]
    own: tuple[Parameter, ...]


def _parameter(name: str, default: Value) -> Parameter:
    annotation = type(default).__name__
    return Parameter(name=name, kind="hyperparameter", required=False, default=default, annotation=annotation, line=0)


PREDICTING = UseOfModel(
    "prediction",
    PREDICT_DATA,
    {PREDICT: "predict(model, batch)", POST: "post(output)"},
    (_parameter(ON_BAD, "fail"), _parameter(SHARD_ROWS, 0)),
)
EVALUATING = UseOfModel(
    "evaluation",
    EVALUATE_DATA,
    {EVALUATE: "evaluate(model, batch)"},
    (_parameter(TARGET, ""), _parameter(CHECKPOINT, "")),
)


def is_use_of_model(use: UseOfModel, functions: set[str]) -> bool:
    """Return True if a cell with these functions says on what to use a model, and trains nothing."""
    return use.data in functions and not functions & {*REQUIRED, "train"}


def definition_of_use(use: UseOfModel, tree: ast.Module, roles_from: int) -> Definition:
    """Return the definition of a cell with a function `use.data`; raise InvalidDefinition for wrong arguments."""
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    own = [node for node in nodes.values() if node.lineno >= roles_from and node.name in (use.data, *use.takes)]
    found = FoundFunctions(nodes, {}, (), guesses=False, loop_values=BEFORE_TRAINING, own_defaults=True)
    functions: dict[str, Function] = {}
    add_function(use.data, found, functions)
    for node in own:
        if node.name in use.takes:
            _check_arguments(node, use.takes[node.name])
            functions[node.name] = Function(name=node.name, line=node.lineno, parameters=())
    return Definition(
        form=use.form,
        roles=tuple(node.name for node in sorted(own, key=lambda node: node.lineno)),
        functions=functions,
        hyperparameters={**merged(functions), **{each.name: each for each in use.own}},
        settings={"form": use.form, "batch_size": BATCH_SIZE},
    )


def _check_arguments(node: FunctionNode, called: str) -> None:
    arguments = [*node.args.posonlyargs, *node.args.args]
    required = len(arguments) - len(node.args.defaults)
    takes = called.count(",") + 1
    if required > takes or len(arguments) < takes:
        raise InvalidDefinition(f"{node.name} (line {node.lineno}) is called as {called}", line=node.lineno)
