"""Determine which values a submitted cell's job sets, trains or changes, and what to tell the user about them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jupyter_ext.capture import Capture
from jupyter_ext.capture.unseeded import is_data
from jupyter_ext.submit.submit import PreparedSubmission
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.plain import brought_back
from kernel_backend.definition.script.bindings import mutated_roots
from kernel_backend.model.syntax import module_tree
from kernel_backend.model.values import listed

_LISTED = 6  # names that a note lists
_CONTAINERS = (list, dict, set, deque)


def gives_values(checked: PreparedSubmission) -> bool:
    """Return True if the job of a submitted cell gives back the values that the cell sets."""
    config = checked.config
    return (
        checked.definition.form not in ("command", "prediction", "evaluation")
        and config.values != "off"
        and config.search is None
    )


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
    names = form_named(definition.form).gives(tree, cell, definition)
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


def comes_back(names: Collection[str]) -> Iterator[str]:
    """Yield a note on the values that come from the job, if there are any."""
    if names:
        yield f"a cell that reads {listed(sorted(names), _LISTED)} waits for this job, and gets what it has set"
