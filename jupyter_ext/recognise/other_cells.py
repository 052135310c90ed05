"""Find values of other cells that a submitted cell lacks (its model, its data), and suggest lines that use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jupyter_ext.recognise.found import Recognised
from jupyter_ext.recognise.trees import binds
from kernel_backend.definition.aliases import role_of
from kernel_backend.definition.contract import is_step
from kernel_backend.definition.value_roles import VALUES
from kernel_backend.model.syntax import module_tree

# Classes that identify a role's value without importing torch; a loss may be any callable.
_CLASSES: Mapping[str, tuple[str, ...]] = {
    "model": ("Module",),
    "train_data": ("DataLoader", "Dataset", "Tensor"),
    "validation_data": ("DataLoader", "Dataset", "Tensor"),
    "optimizer": ("Optimizer",),
    "loss": ("Module", "function"),
    "schedule": ("LRScheduler", "ReduceLROnPlateau"),
}


def in_other_cells(missing: Collection[str], own: str, namespace: Mapping[str, object]) -> Recognised | None:
    """Return advice on a cell that lacks roles, such as its model or data, which exist as values of other cells.

    The advice has a cell that uses these values. `own` is the source of the cell, and `namespace` holds the notebook's
    values. Returns None if one of the `missing` roles exists in no cell.
    """
    bound = {name for each in module_tree(own).body for name in binds(each)}
    present = {role_of(name) or name for name in bound}
    found = {
        role: name
        for role in VALUES
        if role not in present and (name := _name(role, {key: namespace[key] for key in namespace if key not in bound}))
    }
    if not missing or any(map(is_step, present)) or not set(missing) <= set(found):
        return None
    made = ", ".join(f"{found[role]} (a {type(namespace[found[role]]).__name__})" for role in missing)
    lines = [f"{found[role]} = {found[role]}" for role in found]
    return Recognised(
        f"this cell has no {' and no '.join(missing)}. Other cells have made {made}, and values of other cells train "
        "only where this cell names them. Here it is with a line for each",
        "\n".join([*lines, own]),
    )


def _name(role: str, namespace: Mapping[str, object]) -> str | None:
    """Return the notebook variable that holds a role's value, such as the training data; None if there is none.

    The variable with the role's own name comes first, then the newest DataLoader, then the newest variable with a usual
    name for this role and a suitable value.
    """
    names = [name for name, value in namespace.items() if role in (name, role_of(name)) and _fits(role, value)]
    loaders = [name for name in names if type(namespace[name]).__name__ == "DataLoader"]
    if role in names:
        return role
    return next(reversed(loaders or names), None)


def _fits(role: str, value: object) -> bool:
    return bool({each.__name__ for each in type(value).__mro__} & set(_CLASSES.get(role, ())))
