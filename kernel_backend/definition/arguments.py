"""Resolve the arguments of a definition's functions: hyperparameters, loop values, or results of other functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernel_backend.definition.aliases import by_place, role_of
from kernel_backend.definition.contract import LOOP_VALUES, Function, Parameter, is_role, is_step
from kernel_backend.definition.merge import with_default
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode
from kernel_backend.model.values import as_value, literal

# Loop values that exist only during training: functions called before it cannot take them.
BEFORE_TRAINING = frozenset({"device", "rank", "world", "run", "steps", "epochs"})
_WHILE_TRAINING = LOOP_VALUES - BEFORE_TRAINING
# Arguments of a sampler that stand for the result of train_data, unless the cell has a function of that name.
_DATASETS = ("data", "dataset", "data_source", "source")


@dataclass(frozen=True)
class FoundFunctions:
    """Functions found in a module, keyed by role if they have one, else by their own name."""

    nodes: Mapping[str, FunctionNode]
    taken: Mapping[str, str]  # aliases of roles -> the role
    keys: tuple[str, ...]  # keys of the dict that `model` returns
    guesses: bool  # aliases of arguments are accepted, too
    steps_by_name: bool = False  # also those of training steps and of other functions that take the model
    loop_values: frozenset[str] = LOOP_VALUES
    values: Mapping[str, Function] = field(default_factory=dict)  # roles that are assigned values
    own_defaults: bool = False  # an argument with a default is always a hyperparameter


def called_functions(tree: ast.Module, roles_from: int, names: Sequence[str]) -> dict[str, Function]:
    """Return those of the cell's functions that a framework such as Keras calls, and the functions that they use.

    A function uses another if it takes its result as an argument. `names` are the names by which the framework knows
    the functions. The cell begins at line `roles_from` of the module.
    """
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    found = FoundFunctions(nodes, {}, (), guesses=False)
    functions: dict[str, Function] = {}
    for name in names:
        if name in nodes and nodes[name].lineno >= roles_from:
            add_function(name, found, functions)
    return functions


def add_function(
    name: str, found: FoundFunctions, functions: dict[str, Function], within: tuple[str, ...] = ()
) -> None:
    """Add the function `name` to `functions`, after the functions whose results it takes.

    `within` are the functions that take its result, from the outermost on. Raises InvalidDefinition for functions that
    take each other's results, and for an argument that Daylight cannot provide.
    """
    if name in within:
        circle = " -> ".join([*within[within.index(name) :], name])
        raise InvalidDefinition(
            f"these functions wait for each other's results: {circle}", line=found.nodes[name].lineno
        )
    if name in functions:
        return
    if name in found.values:
        functions[name] = found.values[name]
        return
    function = _function(name, found)
    for parameter in function.parameters:
        if parameter.kind == "function":
            add_function(parameter.value_of, found, functions, (*within, name))
    functions[name] = function


def _function(name: str, found: FoundFunctions) -> Function:
    node = found.nodes[name]
    arguments = node.args
    star = arguments.vararg or arguments.kwarg
    if star or arguments.posonlyargs:
        what = "positional-only arguments" if star is None else f"{'*' if arguments.vararg else '**'}{star.arg}"
        raise InvalidDefinition(
            f"{node.name} (line {node.lineno}) has {what}, and arguments are given by name: name each",
            line=node.lineno,
            text=node.name,
        )
    positional = len(arguments.args) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*[None] * positional, *arguments.defaults, *arguments.kw_defaults]
    named = zip([*arguments.args, *arguments.kwonlyargs], defaults, strict=True)
    parameters = [_parameter(name, argument, default, found) for argument, default in named]
    meant = by_place(name, parameters) if found.steps_by_name or (found.guesses and not is_step(name)) else {}
    placed = [
        each.model_copy(update={"kind": "loop", "source": meant[each.name]}) if each.name in meant else each
        for each in parameters
    ]
    written = node.name if node.name != name else ""
    return Function(name=name, written=written, line=node.lineno, parameters=tuple(placed))


def _parameter(function: str, argument: ast.arg, default: ast.expr | None, found: FoundFunctions) -> Parameter:
    node = found.nodes[function]
    name, required = argument.arg, default is None
    value_of = found.taken.get(name, name)
    takes_model = (function == "optimizer" and found.guesses) or (_may_take_models(function) and found.steps_by_name)
    if takes_model and required and name not in found.nodes and role_of(name) == "model":
        value_of = "model"
    if function == "sampler" and required and name not in found.nodes and name in _DATASETS:
        value_of = "train_data"
    annotation = ast.unparse(argument.annotation) if argument.annotation else None
    kind: Literal["loop", "function", "hyperparameter"] = "hyperparameter"
    is_part = name in found.keys and _may_take_models(function)
    given = value_of in found.loop_values or name in found.loop_values
    if (given and (required or (name in found.loop_values and not found.own_defaults))) or is_part:
        _check_available(function, node, argument, value_of)
        kind = "loop"
    elif required and (value_of in found.nodes or value_of in found.values):
        kind = "function"
    value = _default(node, argument, default) if kind == "hyperparameter" else None
    parameter = Parameter(
        name=name,
        source=value_of if value_of != name and kind != "hyperparameter" else "",
        kind=kind,
        required=required,
        annotation=annotation,
        line=argument.lineno,
        is_tuple=isinstance(value, tuple),
    )
    return parameter if required or kind != "hyperparameter" else with_default(parameter, as_value(value))


def _may_take_models(function: str) -> bool:
    return function in ("optimizer", "metrics", "on_epoch") or is_step(function)


def _default(node: FunctionNode, argument: ast.arg, default: ast.expr | None) -> Any:
    if default is None:
        return None
    try:
        return literal(default)
    except ValueError:
        name, text = argument.arg, ast.unparse(default)
        raise InvalidDefinition(
            f"{name}={text} of {node.name} (line {argument.lineno}): a hyperparameter is recorded as a "
            f"plain value. Write the value itself, a name such as {name}='relu' that {node.name} looks up, "
            f"or use {text} in the body",
            line=argument.lineno,
            text=text,
        ) from None


def _check_available(function: str, node: FunctionNode, argument: ast.arg, value: str) -> None:
    early = function in ("model", "train_data", "validation_data", "test_data", "prepare") or not is_role(function)
    if early and value in _WHILE_TRAINING:
        raise InvalidDefinition(
            f"{node.name} (line {argument.lineno}) takes {argument.arg}, which exists only while "
            f"a model trains: give this argument another name, such as {argument.arg}_size",
            line=argument.lineno,
            text=argument.arg,
        )
