"""Parse a training definition from its syntax tree, so that notebook, service and runner agree without running code."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from kernel_backend.definition.aliases import by_place, role_of
from kernel_backend.definition.command.definition import command_definition
from kernel_backend.definition.contract import (
    CONTRACT,
    HELPERS,
    LOOP_VALUES,
    REQUIRED,
    ROLES,
    SINCE_THREE,
    Definition,
    Function,
    Parameter,
    is_role,
    is_step,
)
from kernel_backend.definition.forms import RUN, TRAIN, form_of
from kernel_backend.definition.hugging_face import refuse_trainers
from kernel_backend.definition.keras.definition import ROLES as KERAS_ROLES
from kernel_backend.definition.keras.definition import keras_definition
from kernel_backend.definition.lightning.definition import lightning_definition
from kernel_backend.definition.merge import merged, with_default
from kernel_backend.definition.script.definition import script_definition
from kernel_backend.definition.trainer.definition import trainer_definition
from kernel_backend.definition.unused import bound, hints, names_used, understood_as, unused
from kernel_backend.definition.value_roles import (
    Assigned,
    check_values,
    settings_of,
    trains_itself,
    value_functions,
    value_hints,
    value_roles,
)
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode, module_tree
from kernel_backend.model.values import as_value, literal

# Loop values that exist only during training: functions called before it cannot take them.
_BEFORE_TRAINING = frozenset({"device", "rank", "world", "run", "steps", "epochs"})
_WHILE_TRAINING = LOOP_VALUES - _BEFORE_TRAINING
_INSTEAD = {
    "model": "def model(width=64):\n    return nn.Sequential(...)",
    "train_data": "def train_data():\n    return torch.utils.data.TensorDataset(x, y)",
    "loss": "def loss(output, target):\n    return nn.functional.cross_entropy(output, target)",
}
# Arguments of a sampler that stand for the result of train_data, unless the cell has a function of that name.
_DATASETS = ("data", "dataset", "data_source", "source")
_SHOWN = 500  # maximum length of the quoted line


@dataclass(frozen=True)
class _Found:
    """Functions found in a module, keyed by role if they have one, else by their own name."""

    nodes: Mapping[str, FunctionNode]
    taken: Mapping[str, str]  # aliases of roles -> the role
    keys: tuple[str, ...]  # keys of the dict that `model` returns
    guesses: bool  # aliases of arguments are accepted, too
    loop_values: frozenset[str] = LOOP_VALUES
    values: Mapping[str, Function] = field(default_factory=dict)  # roles that are assigned values
    own_defaults: bool = False  # an argument with a default is always a hyperparameter


def parse(
    source: str,
    roles_from: int = 1,
    contract: int = CONTRACT,
    modules: Mapping[str, ast.Module] = MappingProxyType({}),
) -> Definition:
    """Return the training definition in `source`; functions above line `roles_from` are helpers, not roles.

    `contract` is the version of these rules under which the snapshot was made; `modules` are those of the user's
    project. Raises InvalidDefinition (with `details["line"]` and `details["text"]`, and `details["roles"]` if it is
    about roles) for a syntax error, a missing role, a role that is not a function, an argument that Daylight cannot
    provide, a name with two defaults, or code that is nested too deeply.
    """
    try:
        return _parsed(_tree(source), roles_from, contract, modules)
    except (RecursionError, MemoryError):  # raised by Python's parser for code that is nested too deeply
        raise InvalidDefinition("an expression is nested too deeply to be read: split it into several") from None


def _parsed(tree: ast.Module, roles_from: int, contract: int, modules: Mapping[str, ast.Module]) -> Definition:
    form = form_of(tree, roles_from, modules) if contract > 2 else "functions"
    if form == "command":
        return command_definition(tree, modules)
    if form == "plain":
        # Restarts are disabled, as the cell would run again from its beginning.
        settings = {"form": "plain", "epochs": 1, "max_restarts": 0}
        return Definition(form="plain", roles=(), functions={}, hyperparameters={}, settings=settings)
    if form == "loop":
        return _loop(tree, roles_from)
    if form == "trainer":
        return trainer_definition(tree, roles_from)
    if form == "lightning":
        return lightning_definition(tree, roles_from, _called(tree, roles_from, ("train_data", "validation_data")))
    if form == "keras":
        return _keras(tree, roles_from)
    if form == "script":
        return script_definition(tree, modules)
    return _functions(tree, roles_from, contract)


def _loop(tree: ast.Module, roles_from: int) -> Definition:
    """Return the definition of a cell with a function `train(run, ...)`.

    Its arguments may be results of other functions.
    """
    refuse_trainers(tree)
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    own = [node for node in nodes.values() if node.lineno >= roles_from and node.name in ("prepare", TRAIN)]
    found = _Found(nodes, {}, (), guesses=False, loop_values=_BEFORE_TRAINING, own_defaults=True)
    functions: dict[str, Function] = {}
    for node in own:
        _add(node.name, found, functions, within=())
    definition = Definition(
        form="loop",
        roles=tuple(node.name for node in sorted(own, key=_line)),
        functions=functions,
        hyperparameters=merged(functions),
        settings=_length_of_loop(nodes[TRAIN]),
    )
    if "prepare" in definition.roles:
        _check_prepare(definition)
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


def _keras(tree: ast.Module, roles_from: int) -> Definition:
    """Return the training definition of a Keras cell, which begins at line `roles_from`."""
    definition = keras_definition(tree, roles_from, _called(tree, roles_from, KERAS_ROLES))
    if "prepare" in definition.roles:
        _check_prepare(definition)
    return definition


def _called(tree: ast.Module, roles_from: int, names: Sequence[str]) -> dict[str, Function]:
    """Return the functions of the cell with these names, which a framework calls, and the functions that they use."""
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    found = _Found(nodes, {}, (), guesses=False)
    functions: dict[str, Function] = {}
    for name in names:
        if name in nodes and nodes[name].lineno >= roles_from:
            _add(name, found, functions, within=())
    return functions


def _functions(tree: ast.Module, roles_from: int, contract: int) -> Definition:
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    own = [node for node in nodes.values() if node.lineno >= roles_from]
    named = [role for role in ROLES if contract > 2 or role not in SINCE_THREE] if contract > 1 else []
    taken = understood_as(tree, own, named)
    helpers = HELPERS & names_used(tree)
    candidates = (taken.get(node.name, node.name) for node in sorted(own, key=_line))
    roles = [role for role in candidates if is_role(role) and role not in helpers]
    nodes |= {role: nodes[name] for name, role in taken.items()}
    values = _values(tree, roles_from, roles) if contract > 3 else {}
    roles = sorted([*roles, *values], key=lambda role: values[role].line if role in values else nodes[role].lineno)
    _require(tree, roles, roles_from, {each.name for each in values.values()})
    keys = _value_keys(values["model"].value) if "model" in values else _model_keys(nodes["model"])
    found = _Found(nodes, taken, keys, contract > 1, values=value_functions(values))
    functions: dict[str, Function] = {}
    for role in roles:
        _add(role, found, functions, within=())
    definition = Definition(
        roles=tuple(roles),
        functions=functions,
        hyperparameters=merged(functions) | (_of_adamw(functions) if contract > 1 else {}),
        hints=(*_by_place(functions), *hints(tree, own, taken), *value_hints(values)),
        unused=tuple(unused(tree, own, taken, roles, roles_from)),
        settings=settings_of(values),
        models=found.keys,
    )
    check_values(functions)
    if "prepare" in roles:
        _check_prepare(definition)
    if definition.models:
        _check_models(definition)
    return definition


def _values(tree: ast.Module, roles_from: int, roles: Collection[str]) -> dict[str, Assigned]:
    """Return the roles to which the cell assigns values, as in `model = Net()`.

    Raises InvalidDefinition if the cell also contains a training loop.
    """
    values = value_roles(tree, roles_from, roles)
    if values and (trained := trains_itself(tree, roles_from)):
        line, text = trained
        raise InvalidDefinition(
            f"this cell trains by itself (line {line}: {text[:_SHOWN]}), and Daylight trains {', '.join(values)} "
            "in its own loop: take that statement away, with the loop around it",
            line=line,
            text=text[:_SHOWN],
            roles=sorted(values),
        )
    return values


def _line(node: FunctionNode) -> int:
    return node.lineno


def _tree(source: str) -> ast.Module:
    try:
        return module_tree(source)
    except SyntaxError as error:
        text = (error.text or "").strip()[:_SHOWN]
        where = f"line {error.lineno}: " if error.lineno else ""  # errors about null characters have no line
        raise InvalidDefinition(f"{where}{error.msg}: {text}", line=error.lineno, text=text) from None
    except ValueError as error:  # null bytes
        raise InvalidDefinition(f"this is no Python source: {error}", line=1, text="") from None


def _require(tree: ast.Module, roles: list[str], roles_from: int, values: Collection[str]) -> None:
    helpers = HELPERS & names_used(tree)  # sampler = ..., and DataLoader(..., sampler=sampler)
    for name, line, how in bound(tree, roles_from):
        if how is None or name not in ROLES or name in helpers or name in values:
            continue
        raise InvalidDefinition(
            f"{name} is {how} on line {line}, and a role is a function: write def {name}(...), or take another name",
            line=line,
            text=name,
            roles=[name],
        )
    missing = [role for role in REQUIRED if role not in roles]
    if any(is_step(role) for role in roles) and "loss" in missing:
        missing.remove("loss")
    if missing:
        examples = "\n".join(_INSTEAD[role] for role in missing)
        raise InvalidDefinition(
            f"this cell has no {' and no '.join(missing)}; {_there_is(tree, roles, roles_from)}. "
            f"Write for example\n{examples}",
            roles=missing,
        )


def _there_is(tree: ast.Module, roles: list[str], roles_from: int) -> str:
    others = [
        f"{'class' if isinstance(node, ast.ClassDef) else 'function'} {node.name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef | FunctionNode) and node.lineno >= roles_from and node.name not in roles
    ]
    found = roles + others
    return f"it has {', '.join(found)}" if found else "it defines no function"


def _model_keys(node: FunctionNode) -> tuple[str, ...]:
    """Return the keys of the dict that the function `model` returns; roles can take these models as arguments."""
    within = list(ast.walk(node))
    assigned = {
        target.id: each.value
        for each in within
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    returned = [each.value for each in within if isinstance(each, ast.Return)]
    values = [assigned.get(each.id) if isinstance(each, ast.Name) else each for each in returned]
    return tuple(dict.fromkeys(key for each in values for key in _keys(each)))


def _value_keys(value: ast.expr) -> tuple[str, ...]:
    return tuple(_keys(value))


def _keys(value: ast.expr | None) -> Iterator[str]:
    """Yield the keys of a dict that is written as `{...}`, `dict(...)` or `nn.ModuleDict(...)`."""
    if isinstance(value, ast.Dict):
        yield from (key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
    elif isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("dict", "ModuleDict"):
        yield from (each.arg for each in value.keywords if each.arg)
        for argument in value.args:
            yield from _keys(argument)


def _add(name: str, found: _Found, functions: dict[str, Function], within: tuple[str, ...]) -> None:
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
            _add(parameter.value_of, found, functions, (*within, name))
    functions[name] = function


def _function(name: str, found: _Found) -> Function:
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
    meant = by_place(name, parameters) if found.guesses else {}
    placed = [
        each.model_copy(update={"kind": "loop", "source": meant[each.name]}) if each.name in meant else each
        for each in parameters
    ]
    written = node.name if node.name != name else ""
    return Function(name=name, written=written, line=node.lineno, parameters=tuple(placed))


def _parameter(function: str, argument: ast.arg, default: ast.expr | None, found: _Found) -> Parameter:
    node = found.nodes[function]
    name, required = argument.arg, default is None
    value_of = found.taken.get(name, name)
    if function == "optimizer" and found.guesses and required and name not in found.nodes and role_of(name) == "model":
        value_of = "model"
    if function == "sampler" and required and name not in found.nodes and name in _DATASETS:
        value_of = "train_data"
    annotation = ast.unparse(argument.annotation) if argument.annotation else None
    kind: Literal["loop", "function", "hyperparameter"] = "hyperparameter"
    is_part = name in found.keys and (function in ("optimizer", "metrics", "on_epoch") or is_step(function))
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


def _check_prepare(definition: Definition) -> None:
    """Raise InvalidDefinition if `prepare` takes values of the training loop or roles' results, or is an argument."""
    for function in definition.needs("prepare"):
        for parameter in function.parameters:
            if parameter.kind == "loop" or (parameter.kind == "function" and parameter.value_of in definition.roles):
                raise InvalidDefinition(
                    f"{function.name} (line {parameter.line}) takes {parameter.name}, and prepare runs before there "
                    "is any: it can have hyperparameters, and results of functions that take nothing else",
                    line=parameter.line,
                    text=parameter.name,
                )
    for function in definition.functions.values():
        for parameter in function.parameters:
            if parameter.kind == "function" and parameter.value_of == "prepare":
                raise InvalidDefinition(
                    f"{function.name} (line {parameter.line}) takes what prepare returns, which runs once for all "
                    f"trials and gives nothing on: have prepare write files, and {function.name} read them",
                    line=parameter.line,
                    text="prepare",
                )


def _check_models(definition: Definition) -> None:
    """Raise InvalidDefinition if there are several models without a step, or if `loss` or `metrics` take `output`."""
    names = ", ".join(definition.models)
    line = definition.functions["model"].line
    if not definition.steps:
        raise InvalidDefinition(
            f"model (line {line}) returns several models ({names}), and no function says how they train: write "
            f"def step_{definition.models[0]}({names}, batch) for each optimizer, or one def step({names}, batch); "
            'each returns {"loss": ...}',
            line=line,
            roles=["step"],
        )
    instead = {
        "loss": "leave loss out, and the validation uses the steps",
        "metrics": f"have it ask for {names} and batch",
    }
    for role in instead.keys() & definition.functions.keys():
        for parameter in definition.functions[role].parameters:
            if parameter.value_of == "output":
                raise InvalidDefinition(
                    f"{role} (line {parameter.line}) asks for {parameter.name}, the output of one model, and model "
                    f"returns several ({names}): {instead[role]}",
                    line=parameter.line,
                    text=parameter.name,
                )


def _of_adamw(functions: Mapping[str, Function]) -> dict[str, Parameter]:
    """Return the hyperparameter `lr` of AdamW, which trains a definition that has neither optimizer nor `lr`."""
    if "optimizer" in functions or any(each.name == "lr" for one in functions.values() for each in one.parameters):
        return {}
    return {"lr": Parameter(name="lr", kind="hyperparameter", required=False, default=1e-3, annotation="float", line=0)}


def _by_place(functions: Mapping[str, Function]) -> Iterator[str]:
    for function in functions.values():
        taken = [each for each in function.parameters if each.kind == "loop" and each.source]
        if taken:
            names, values = (
                ", ".join(map(str, each)) for each in zip(*((p.name, p.source) for p in taken), strict=True)
            )
            yield f"{names} of {function.attribute} (line {function.line}): taken as {values}"
