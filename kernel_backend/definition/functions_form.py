"""Read the definition of a cell that consists of role functions, such as `model`, `train_data` and `loss`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from kernel_backend.definition.aliases import takes_model
from kernel_backend.definition.arguments import FoundFunctions, add_function
from kernel_backend.definition.checks import check_models, check_prepare
from kernel_backend.definition.contract import (
    HELPERS,
    REQUIRED,
    ROLES,
    SINCE_THREE,
    Definition,
    Function,
    Parameter,
    is_role,
    is_step,
)
from kernel_backend.definition.merge import merged
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
from kernel_backend.model.syntax import FunctionNode

_INSTEAD = {
    "model": "def model(width=64):\n    return nn.Sequential(...)",
    "train_data": "def train_data():\n    return torch.utils.data.TensorDataset(x, y)",
    "loss": "def loss(output, target):\n    return nn.functional.cross_entropy(output, target)",
}
_TRAINING_STEPS = ("training_step", "train_step")  # of other frameworks
_SHOWN = 500  # maximum length of the quoted line


def functions_definition(tree: ast.Module, roles_from: int, contract: int) -> Definition:
    """Return the definition of the cell's role functions, which begin at line `roles_from`.

    `contract` is the version of the rules for definitions under which the snapshot was made. Raises InvalidDefinition.
    """
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    own = [node for node in nodes.values() if node.lineno >= roles_from]
    named = [role for role in ROLES if contract > 2 or role not in SINCE_THREE] if contract > 1 else []
    taken = understood_as(tree, own, named)
    helpers = HELPERS & names_used(tree)
    if contract > 4 and (loss := _loss_of_the_model(own, taken)):
        used = loss in names_used(tree)
        if any(is_step(node.name) for node in own):
            helpers |= {"loss"} if used else set()
        elif not used or loss not in _TRAINING_STEPS:
            taken |= {loss: "step"}
    candidates = (taken.get(node.name, node.name) for node in sorted(own, key=_line))
    roles = [role for role in candidates if is_role(role) and role not in helpers]
    nodes |= {role: nodes[name] for name, role in taken.items()}
    values = _values(tree, roles_from, roles) if contract > 3 else {}
    roles = sorted([*roles, *values], key=lambda role: values[role].line if role in values else nodes[role].lineno)
    _require(tree, roles, roles_from, {each.name for each in values.values()})
    keys = _value_keys(values["model"].value) if "model" in values else _model_keys(nodes["model"])
    found = FoundFunctions(nodes, taken, keys, contract > 1, contract > 4, values=value_functions(values))
    functions: dict[str, Function] = {}
    for role in roles:
        add_function(role, found, functions)
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
        check_prepare(definition)
    if definition.models:
        check_models(definition)
    return definition


def _loss_of_the_model(own: Collection[FunctionNode], taken: Mapping[str, str]) -> str | None:
    """Return the name of the cell's function `loss` or `training_step` if it takes the model itself; else None.

    `own` are the functions of the cell; `taken` are those that have a role by an alias.
    """
    roles = {taken.get(node.name, node.name): node for node in own}
    model = roles.get("model")
    loss = next((roles[name] for name in ("loss", *_TRAINING_STEPS) if name in roles), None)
    if loss is None:
        return None
    count = len(loss.args.args) - len(loss.args.defaults)
    required = [each.arg for each in loss.args.args[:count]]
    return loss.name if takes_model(required, _model_keys(model) if model else ()) else None


def _values(tree: ast.Module, roles_from: int, roles: Collection[str]) -> dict[str, Assigned]:
    """Return the roles to which the cell assigns values, as in `model = Net()`.

    `roles` are those that the cell defines as functions. Raises InvalidDefinition if the cell also contains a training
    loop.
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
    """Return the keys of the dict that the function `model` returns.

    Roles take the models as arguments of these names.
    """
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


def _of_adamw(functions: Mapping[str, Function]) -> dict[str, Parameter]:
    """Return the hyperparameter `lr` of AdamW, which trains if the cell defines no optimizer, by its name.

    Empty if the definition has an optimizer, or if one of its functions has an argument `lr`.
    """
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
