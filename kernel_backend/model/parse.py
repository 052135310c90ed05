"""A definition from its source, found by AST alone, so that all sides agree before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.definition import LOOP_VALUES, ROLES, Definition, Function, Parameter, is_role, is_step
from kernel_backend.model.record import Value
from kernel_backend.model.syntax import module_tree
from kernel_backend.model.values import as_value, coerce, literal, nearest

# What exists only once a model trains: a function that is called before that cannot ask for it.
_WHILE_TRAINING = LOOP_VALUES - {"device", "rank", "world", "run", "steps", "epochs"}
_INSTEAD = {
    "model": "def model(width=64):\n    return nn.Sequential(...)",
    "train_data": "def train_data():\n    return torch.utils.data.TensorDataset(x, y)",
    "loss": "def loss(output, target):\n    return nn.functional.cross_entropy(output, target)",
}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def parse(source: str, roles_from: int = 1) -> Definition:
    """What `source` defines, where functions above line `roles_from` are helpers and no roles.

    Raises InvalidDefinition (`details["line"]`, `details["text"]`) for a syntax error, a missing role, a role
    that is no function, an argument that cannot be injected, or one name with two defaults.
    """
    tree = _tree(source)
    nodes = {node.name: node for node in tree.body if isinstance(node, FunctionNode)}
    roles = [name for name, node in _in_order(nodes) if node.lineno >= roles_from and is_role(name)]
    _require(tree, roles, roles_from)
    keys = _model_keys(nodes["model"])
    functions: dict[str, Function] = {}
    for name in roles:
        _add(name, nodes, keys, functions, within=())
    definition = Definition(
        roles=tuple(roles),
        functions=functions,
        hyperparameters=_merged(functions),
        hints=tuple(_hints(tree, roles_from)),
    )
    if "prepare" in roles:
        _check_prepare(definition)
    return definition


def _tree(source: str) -> ast.Module:
    try:
        return module_tree(source)
    except RecursionError:
        raise InvalidDefinition("an expression is nested too deeply to be read: split it into several") from None
    except SyntaxError as error:
        text = (error.text or "").strip()
        raise InvalidDefinition(f"line {error.lineno}: {error.msg}: {text}", line=error.lineno, text=text) from None
    except ValueError as error:  # null bytes
        raise InvalidDefinition(f"this is no Python source: {error}", line=1, text="") from None


def _in_order(nodes: Mapping[str, FunctionNode]) -> list[tuple[str, FunctionNode]]:
    return sorted(nodes.items(), key=lambda item: item[1].lineno)


def _require(tree: ast.Module, roles: list[str], roles_from: int) -> None:
    for name, line, how in _bound_otherwise(tree, roles_from):
        raise InvalidDefinition(
            f"{name} is {how} on line {line}, and a role is a function: write def {name}(...), or take another name",
            line=line,
            text=name,
        )
    missing = [role for role in ("model", "train_data") if role not in roles]
    if not any(role == "loss" or is_step(role) for role in roles):
        missing.append("loss")
    if missing:
        examples = "\n".join(_INSTEAD[role] for role in missing)
        raise InvalidDefinition(
            f"this cell has no {' and no '.join(missing)}; {_found(tree, roles, roles_from)}. "
            f"Write for example\n{examples}"
        )


def _found(tree: ast.Module, roles: list[str], roles_from: int) -> str:
    others = [
        f"{'class' if isinstance(node, ast.ClassDef) else 'function'} {node.name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef | FunctionNode) and node.lineno >= roles_from and node.name not in roles
    ]
    found = roles + others
    return f"it has {', '.join(found)}" if found else "it defines no function"


def _bound_otherwise(tree: ast.Module, roles_from: int) -> Iterator[tuple[str, int, str]]:
    """Role names of the cell that mean something else: `loss = nn.MSELoss()` would go unnoticed."""
    last: dict[str, tuple[int, str | None]] = {}
    for node in tree.body:
        if node.lineno < roles_from:
            continue
        if isinstance(node, FunctionNode):
            last[node.name] = node.lineno, "asynchronous" if isinstance(node, ast.AsyncFunctionDef) else None
        elif isinstance(node, ast.ClassDef):
            last[node.name] = node.lineno, "a class"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            last |= {each.id: (node.lineno, "assigned") for each in targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            last |= {each.asname or each.name: (node.lineno, "imported") for each in node.names}
    return ((name, line, how) for name, (line, how) in last.items() if how and name in ROLES)


def _model_keys(node: FunctionNode) -> frozenset[str]:
    """The keys of a dict display that `model` returns: other roles may ask for its parts by name."""
    dicts = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and isinstance(each.value, ast.Dict)]
    keys = [key.value for each in dicts for key in each.keys if isinstance(key, ast.Constant)]
    return frozenset(key for key in keys if isinstance(key, str))


def _add(
    name: str,
    nodes: Mapping[str, FunctionNode],
    keys: frozenset[str],
    functions: dict[str, Function],
    within: tuple[str, ...],
) -> None:
    if name in within:
        circle = " -> ".join([*within[within.index(name) :], name])
        raise InvalidDefinition(f"these functions wait for each other's results: {circle}", line=nodes[name].lineno)
    if name in functions:
        return
    function = _function(nodes[name], nodes, keys)
    for parameter in function.parameters:
        if parameter.kind == "function":
            _add(parameter.name, nodes, keys, functions, (*within, name))
    functions[name] = function


def _function(node: FunctionNode, nodes: Mapping[str, FunctionNode], keys: frozenset[str]) -> Function:
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
    parameters = tuple(_parameter(node, argument, default, nodes, keys) for argument, default in named)
    return Function(name=node.name, line=node.lineno, parameters=parameters)


def _parameter(
    node: FunctionNode,
    argument: ast.arg,
    default: ast.expr | None,
    nodes: Mapping[str, FunctionNode],
    keys: frozenset[str],
) -> Parameter:
    name, required = argument.arg, default is None
    annotation = ast.unparse(argument.annotation) if argument.annotation else None
    kind: Literal["loop", "function", "hyperparameter"] = "hyperparameter"
    if name in LOOP_VALUES or (name in keys and (node.name == "optimizer" or node.name.startswith("step"))):
        _check_available(node, argument)
        kind = "loop"
    elif required and name in nodes:
        kind = "function"
    value = _default(node, argument, default) if kind == "hyperparameter" else None
    parameter = Parameter(
        name=name,
        kind=kind,
        required=required,
        annotation=annotation,
        line=argument.lineno,
        is_tuple=isinstance(value, tuple),
    )
    return parameter if required or kind != "hyperparameter" else _with_default(parameter, as_value(value))


def _with_default(parameter: Parameter, default: Value) -> Parameter:
    try:
        value = coerce(default, parameter.annotation, default)
    except ValueError:  # `width: int = "auto"` is the author's business
        value = default
    return parameter.model_copy(update={"default": value})


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


def _check_available(node: FunctionNode, argument: ast.arg) -> None:
    early = node.name in ("model", "train_data", "validation_data", "test_data", "prepare") or not is_role(node.name)
    if early and argument.arg in _WHILE_TRAINING:
        raise InvalidDefinition(
            f"{node.name} (line {argument.lineno}) asks for {argument.arg}, which exists only while "
            f"a model trains: give this argument another name, such as {argument.arg}_size",
            line=argument.lineno,
            text=argument.arg,
        )


def _check_prepare(definition: Definition) -> None:
    """It runs before there is anything of a trial, and most processes of an experiment never see it run."""
    for function in definition.needs("prepare"):
        for parameter in function.parameters:
            if parameter.kind == "loop" or (parameter.kind == "function" and parameter.name in definition.roles):
                raise InvalidDefinition(
                    f"{function.name} (line {parameter.line}) asks for {parameter.name}, and prepare runs before there "
                    "is any: it can have hyperparameters, and results of functions that ask for nothing else",
                    line=parameter.line,
                    text=parameter.name,
                )
    for function in definition.functions.values():
        for parameter in function.parameters:
            if parameter.kind == "function" and parameter.name == "prepare":
                raise InvalidDefinition(
                    f"{function.name} (line {parameter.line}) asks for what prepare returns, which runs once for all "
                    f"trials and gives nothing on: have prepare write files, and {function.name} read them",
                    line=parameter.line,
                    text="prepare",
                )


def _merged(functions: Mapping[str, Function]) -> dict[str, Parameter]:
    """One parameter a name; a default or an annotation that one place leaves out is taken from another."""
    merged: dict[str, Parameter] = {}
    owners: dict[str, str] = {}
    for function in sorted(functions.values(), key=lambda each: each.line):
        for new in function.parameters:
            if new.kind != "hyperparameter":
                continue
            old = merged.get(new.name)
            merged[new.name] = _one(old, owners[new.name], new, function.name) if old else new
            if old is None or old.required:
                owners[new.name] = function.name
    return merged


def _one(old: Parameter, owner: str, new: Parameter, function: str) -> Parameter:
    if not (old.required or new.required) and not _same(old.default, new.default):
        raise InvalidDefinition(
            f"{old.name} has two defaults: {old.default!r} in {owner} (line {old.line}) and "
            f"{new.default!r} in {function} (line {new.line}). It is one hyperparameter: make them equal, "
            "leave one out, or rename one",
            line=new.line,
            text=new.name,
        )
    kept = new if old.required and not new.required else old
    return kept.model_copy(update={"annotation": old.annotation or new.annotation})


def _same(one: Value, other: Value) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _hints(tree: ast.Module, roles_from: int) -> Iterator[str]:
    """Functions of the cell that nothing uses and whose name is nearly a role's."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in tree.body:
        if not isinstance(node, FunctionNode) or node.lineno < roles_from or is_role(node.name) or node.name in used:
            continue
        if near := nearest(node.name, ROLES):
            yield f"{node.name} (line {node.lineno}) is no role, and nothing uses it{near}"
