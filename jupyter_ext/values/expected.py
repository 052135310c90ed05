"""Determine which values a submitted cell's job sets, trains or changes, and what to tell the user about them."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jupyter_ext.capture import Capture
from jupyter_ext.capture.unseeded import is_data
from jupyter_ext.submit.submit import PreparedSubmission
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.keras.fit import keras_fit
from kernel_backend.definition.lightning.cell import lightning_cell
from kernel_backend.definition.plain import brought_back
from kernel_backend.definition.script.bindings import mutated_roots
from kernel_backend.definition.script.defined import set_by_cell
from kernel_backend.definition.trainer.cell import trainer_cell
from kernel_backend.model.syntax import module_tree
from kernel_backend.model.values import listed

_LISTED = 6  # names that a note lists
_CONTAINERS = (list, dict, set, deque)


def gives_values(checked: PreparedSubmission) -> bool:
    """Return True if the job of a submitted cell gives back the values that the cell sets."""
    config = checked.config
    return checked.definition.form != "command" and config.values != "off" and config.search is None


def expected_values(
    checked: PreparedSubmission, held: Mapping[str, Any], ours: Collection[str], only: bool
) -> list[str]:
    """Return the names whose values the notebook gets from the job of a submitted cell.

    Functions set no variables: `history` stands for their validations, unless the user has one of their own; `held` are
    the notebook's variables, `ours` those that came from jobs. With `only`, it is what the cell marks to be brought
    back.
    """
    capture, definition = checked.capture, checked.definition
    if not gives_values(checked):
        return []
    if only:
        return brought_back(module_tree(capture.source), capture.roles_from)
    names = left_to_job(definition, capture, held)
    has_own = "history" in held and "history" not in ours
    return ["history", *names] if definition.of_functions and not has_own else names


def left_to_job(definition: Definition, capture: Capture, held: Mapping[str, Any]) -> list[str]:
    """Return the names that a submitted cell's job sets, trains or changes, and the notebook does not."""
    tree, cell = module_tree(capture.source), capture.roles_from
    if definition.form == "plain":
        names = brought_back(tree, cell)
    elif definition.form == "script":
        names = set_by_cell(tree, cell)
    else:
        names = _trained(definition, tree, cell)
    return list(dict.fromkeys([*names, *changed_objects(capture, held)]))


def changed_objects(capture: Capture, held: Mapping[str, Any]) -> list[str]:
    """Return the names of earlier cells' objects that a cell changes in place, such as an optimizer or a list.

    Of arrays, tables and loaders only those that it writes to itself: a call that is not known may change others, and
    hardly any does.
    """
    tree = module_tree(capture.source)
    cell = [each for each in tree.body if each.lineno >= capture.roles_from]
    written = {name for each in cell for name in mutated_roots(each)}
    return [name for name in capture.changed if name in held and (name in written or not _is_data(held[name]))]


def _is_data(value: Any) -> bool:
    filled = isinstance(value, _CONTAINERS) or type(value).__module__.startswith("numpy.random")
    return is_data(value) and not filled


def _trained(definition: Definition, tree: ast.Module, cell: int) -> list[str]:
    """Return the model of a cell for a framework, and its Trainer, history and callbacks.

    For a definition that consists of functions it is the model, if that is given as a value and not by a function.
    """
    if definition.form == "lightning":
        found = lightning_cell(tree, cell)
        fit = found.fit
        owner = fit.func.value if fit is not None and isinstance(fit.func, ast.Attribute) else None
        trainers = [owner.id] if isinstance(owner, ast.Name) else []
        return [*(_model(fit) if fit is not None else []), *trainers, *_callbacks(found.trainer)]
    if definition.form == "trainer":
        given = trainer_cell(tree, cell)
        return [*_model(given.trainer), given.name, *_callbacks(given.trainer)]
    if definition.form == "keras" and (call := keras_fit(tree, cell)) is not None:
        return [*([call.target] if call.target else []), call.model, *_callbacks(call.call)]
    model = definition.functions.get("model")
    return [model.attribute] if model is not None and model.value else []


def _model(call: ast.Call) -> list[str]:
    """Return the variable that a Trainer call gets as its model: `["net"]` for `Trainer(net)` or `fit(model=net)`.

    The list is empty if the model is another expression, as in `Trainer(Net())`.
    """
    given = next((each.value for each in call.keywords if each.arg == "model"), None)
    given = call.args[0] if given is None and call.args else given
    return [given.id] if isinstance(given, ast.Name) else []


def _callbacks(trainer: ast.Call | None) -> list[str]:
    """Return the variables that a Trainer gets as callbacks: what they record of the training, the job alone has."""
    given = trainer.keywords if trainer is not None else []
    value = next((each.value for each in given if each.arg == "callbacks"), None)
    return [each.id for each in getattr(value, "elts", [value]) if isinstance(each, ast.Name)]


def comes_back(names: Collection[str]) -> Iterator[str]:
    """Yield a note on the values that come from the job, if there are any."""
    if names:
        yield f"a cell that reads {listed(sorted(names), _LISTED)} waits for this job, and gets what it has set"
