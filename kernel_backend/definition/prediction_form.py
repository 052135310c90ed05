"""Read the definition of predictions: `predict_data()`, and functions that shape a batch's outputs."""

from __future__ import annotations

import ast

from kernel_backend.definition.arguments import BEFORE_TRAINING, FoundFunctions, add_function
from kernel_backend.definition.contract import REQUIRED, Definition, Function, Parameter
from kernel_backend.definition.merge import merged
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode

PREDICT_DATA, PREDICT, POST = "predict_data", "predict", "post"
ON_BAD, SHARD_ROWS = "on_bad", "shard_rows"  # hyperparameters that every prediction has
BATCH_SIZE = 256  # rows, unless --batch-size sets another
_TAKES = {PREDICT: 2, POST: 1}  # (model, batch) and (output)
_OWN = (
    Parameter(name=ON_BAD, kind="hyperparameter", required=False, default="fail", annotation="str", line=0),
    Parameter(name=SHARD_ROWS, kind="hyperparameter", required=False, default=0, annotation="int", line=0),
)


def is_prediction(functions: set[str]) -> bool:
    """Return True if a cell with these functions says of what to predict, and trains nothing."""
    return PREDICT_DATA in functions and not functions & {*REQUIRED, "train"}


def prediction_definition(tree: ast.Module, roles_from: int) -> Definition:
    """Return the definition of a cell with a function `predict_data`; raise InvalidDefinition for wrong arguments."""
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    own = [node for node in nodes.values() if node.lineno >= roles_from and node.name in (PREDICT_DATA, *_TAKES)]
    found = FoundFunctions(nodes, {}, (), guesses=False, loop_values=BEFORE_TRAINING, own_defaults=True)
    functions: dict[str, Function] = {}
    add_function(PREDICT_DATA, found, functions)
    for node in own:
        if node.name in _TAKES:
            _check_arguments(node)
            functions[node.name] = Function(name=node.name, line=node.lineno, parameters=())
    return Definition(
        form="prediction",
        roles=tuple(node.name for node in sorted(own, key=lambda node: node.lineno)),
        functions=functions,
        hyperparameters={**merged(functions), **{each.name: each for each in _OWN}},
        settings={"form": "prediction", "batch_size": BATCH_SIZE},
    )


def _check_arguments(node: FunctionNode) -> None:
    arguments = [*node.args.posonlyargs, *node.args.args]
    required = len(arguments) - len(node.args.defaults)
    takes = _TAKES[node.name]
    if required > takes or len(arguments) < takes:
        written = "predict(model, batch)" if node.name == PREDICT else "post(output)"
        raise InvalidDefinition(f"{node.name} (line {node.lineno}) is called as {written}", line=node.lineno)
