"""Find roles to which a cell assigns values instead of defining functions, as in `model = Net()`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from kernel_backend.definition.aliases import role_of
from kernel_backend.definition.contract import Function, Parameter
from kernel_backend.definition.rewritten import as_function
from kernel_backend.definition.unused import names_used
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode

# Roles that may be a value, and the loop values passed by position if the value is called.
VALUES: Mapping[str, tuple[str, ...]] = {
    "model": (),
    "train_data": (),
    "validation_data": (),
    "test_data": (),
    "optimizer": (),
    "loss": ("output", "target"),
    "metrics": ("output", "target"),
    "schedule": (),
    "sampler": (),
    "collate": ("batch",),
}
# Schedules that PyTorch documents with a step() per batch, or per validation; all others step per epoch.
_OTHERWISE = ("OneCycleLR", "CyclicLR", "ReduceLROnPlateau")


class Assigned(NamedTuple):
    """Top-level assignment of the cell to a role's name or an alias."""

    name: str
    line: int
    value: ast.expr


def value_roles(tree: ast.Module, roles_from: int, present: Collection[str]) -> dict[str, Assigned]:
    """Return the values that the cell, from line `roles_from` on, assigns to roles that are not `present`, by role.

    If several names mean the same role, names from which another of them is computed are left out: `train_set` in
    `train_loader = DataLoader(train_set)`. Raises InvalidDefinition if several remain.
    """
    assigned = {each.name: each for each in _assigned(tree) if each.line >= roles_from}
    found: dict[str, Assigned] = {}
    for role in VALUES:
        named = [each for each in assigned.values() if role in (each.name, role_of(each.name))]
        named = [each for each in named if not _is_plain(each.value)]
        if role in present or not named:
            continue
        last = [each for each in named if not any(_made_of(tree, other, each.name) for other in named if other != each)]
        if len(last) > 1:
            places = " and ".join(f"{each.name} (line {each.line})" for each in last)
            raise InvalidDefinition(
                f"{places} may each be {role}: rename the one that is not", line=last[0].line, text=last[0].name
            )
        if last and not (role in ("sampler", "collate") and last[0].name in names_used(tree)):
            found[role] = last[0]
    return found


def value_functions(found: Mapping[str, Assigned]) -> dict[str, Function]:
    """Return roles that are values as `Function` records without hyperparameters, by role.

    `found` has the assignments of the values, by role.
    """
    return {
        role: Function(
            name=role,
            written=each.name if each.name != role else "",
            line=each.line,
            parameters=tuple(Parameter(name=name, kind="loop", required=True, line=each.line) for name in VALUES[role]),
            value=ast.unparse(each.value),
        )
        for role, each in found.items()
    }


def check_values(functions: Mapping[str, Function]) -> None:
    """Raise InvalidDefinition if an optimizer is a value but `model` is a function, or there is no model.

    The value would hold parameters of another model than the one that the function creates for each training. The same
    applies to a schedule that is a value, and its optimizer.
    """
    for role, other in (("optimizer", "model"), ("schedule", "optimizer")):
        own, needed = functions.get(role), functions.get(other)
        if own is None or not own.value or (needed is not None and needed.value):
            continue
        is_there = f"{other} (line {needed.line}) is a function" if needed else f"there is no {other} of this cell"
        raise InvalidDefinition(
            f"{own.attribute} (line {own.line}) is a value, and {is_there}, which makes another one for each training: "
            f"write\n{as_function(role, own.value)}",
            line=own.line,
            text=own.attribute,
        )


def settings_of(found: Mapping[str, Assigned]) -> dict[str, Any]:
    """Return the configuration fields that the values imply: `schedule_per`, if a schedule steps once per epoch.

    `found` has the assignments of the values, by role. Whether a schedule steps once per epoch is known from the
    documentation of its class.
    """
    schedule = found.get("schedule")
    return {"schedule_per": "epoch"} if schedule is not None and _is_per_epoch(schedule.value) else {}


def value_hints(found: Mapping[str, Assigned]) -> Iterator[str]:
    """Yield hints for the user about roles that are assigned values."""
    schedule = found.get("schedule")
    if schedule is not None and _is_per_epoch(schedule.value):
        place = f"{schedule.name} (line {schedule.line})"
        yield f"{place} steps once per epoch: for a step per batch, add --schedule-per step"


def trains_itself(tree: ast.Module, roles_from: int) -> tuple[int, str] | None:
    """Return line and text of a statement with which the cell itself trains a model; None if there is none."""
    trainers = _trainers(tree)
    models = {each.name for each in _assigned(tree) if role_of(each.name) == "model" or each.name == "model"}
    optimizers = {
        each.name for each in _assigned(tree) if role_of(each.name) == "optimizer" or each.name == "optimizer"
    }
    for statement in tree.body:
        if statement.lineno < roles_from or isinstance(statement, FunctionNode | ast.ClassDef):
            continue
        for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
            if _last_name(call.func) in trainers or _fits(call, models) or _takes(call, models, optimizers):
                return call.lineno, ast.unparse(call)
    return None


def _fits(call: ast.Call, models: Collection[str]) -> bool:
    receiver = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "fit" else None
    return isinstance(receiver, ast.Name) and receiver.id in models


def _takes(call: ast.Call, models: Collection[str], optimizers: Collection[str]) -> bool:
    """Return True if a call receives both a model and its optimizer, as in `train_one_epoch(model, optimizer)`.

    `models` and `optimizers` have the names of the variables that hold them.
    """
    given = {each.id for each in [*call.args, *(one.value for one in call.keywords)] if isinstance(each, ast.Name)}
    return bool(given & set(models)) and bool(given & set(optimizers))


def _trainers(tree: ast.Module) -> set[str]:
    """Return the names of functions and classes that call backward(), directly or indirectly, and `backward` itself."""
    defined = {each.name: each for each in tree.body if isinstance(each, FunctionNode | ast.ClassDef)}
    called = {
        name: {_last_name(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
        for name, node in defined.items()
    }
    found = {"backward"}
    while more := {name for name, calls in called.items() if name not in found and calls & found}:
        found |= more
    return found


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _assigned(tree: ast.Module) -> Iterator[Assigned]:
    """Yield the names to which top-level statements assign values, with these values."""
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                yield Assigned(target.id, node.lineno, node.value)
            elif isinstance(target, ast.Tuple | ast.List):
                for index, each in enumerate(target.elts):
                    if isinstance(each, ast.Name):
                        yield Assigned(each.id, node.lineno, _item(node.value, index, len(target.elts)))


def _item(value: ast.expr, index: int, count: int) -> ast.expr:
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == count:
        return value.elts[index]
    return ast.Subscript(value, ast.Constant(index), ast.Load())


def _is_plain(value: ast.expr) -> bool:
    """Return True if a value consists of literals only, such as `{"loss": []}` or `None`, and so is no role."""
    if isinstance(value, ast.Dict):
        return all(map(_is_plain, value.values))
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return all(map(_is_plain, value.elts))
    return isinstance(value, ast.Constant)


def _made_of(tree: ast.Module, made: Assigned, name: str) -> bool:
    """Return True if the value `made` is computed from the variable `name`, directly or through others."""
    reads: dict[str, set[str]] = {}
    for node in tree.body:
        read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
        stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        for each in {node.name} if isinstance(node, FunctionNode | ast.ClassDef) else stored:
            reads.setdefault(each, set()).update(read - {each})
    known, queue = set[str](), [made.name]
    while queue:
        for each in reads.get(queue.pop(), set()) - known:
            known.add(each)
            queue.append(each)
    return name in known and name != made.name


def _is_per_epoch(value: ast.expr) -> bool:
    """Return True if a schedule steps once per epoch, as its class implies unless an argument counts batches."""
    if not isinstance(value, ast.Call):
        return True
    name, written = _last_name(value.func), ast.unparse(value)
    return name not in _OTHERWISE and not name.startswith("get_") and "len(" not in written and "steps" not in written
