"""Determine which values a submitted cell sets in its job, and what to tell the user about them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jupyter_ext.capture import Capture
from jupyter_ext.capture.unseeded import is_data
from jupyter_ext.submit.submit import PreparedSubmission
from kernel_backend.definition.plain import brought_back
from kernel_backend.definition.script.bindings import mutated_roots
from kernel_backend.definition.script.defined import set_by_cell
from kernel_backend.model.syntax import module_tree
from kernel_backend.model.values import listed

_LISTED = 6  # names that a note lists


def gives_values(checked: PreparedSubmission) -> bool:
    """Return True if the job of a submitted cell gives back the values that the cell sets."""
    config = checked.config
    return checked.definition.form != "command" and config.values != "off" and config.search is None


def set_by_job(checked: PreparedSubmission, held: Mapping[str, Any], ours: Collection[str]) -> list[str]:
    """Return the names that a submitted cell sets in its job, and that the notebook gets from there.

    Functions set no variables: `history` stands for their validations, unless the user has one of their own; `held` are
    the notebook's variables, `ours` those that came from jobs. What a framework trains in a cell is known to the note
    about it.
    """
    if not gives_values(checked):
        return []
    tree, cell = module_tree(checked.capture.source), checked.capture.roles_from
    if checked.definition.of_functions:
        return ["history"] if "history" not in held or "history" in ours else []
    if checked.definition.form == "plain":
        return brought_back(tree, cell)
    return set_by_cell(tree, cell) if checked.definition.form == "script" else []


def changed_objects(capture: Capture, held: Mapping[str, Any]) -> list[str]:
    """Return the names of earlier cells' objects that a cell changes in place, such as an optimizer or a study.

    Of arrays, tables and loaders only those that it writes to itself: a call that is not known may change others, and
    hardly any does.
    """
    tree = module_tree(capture.source)
    cell = [each for each in tree.body if each.lineno >= capture.roles_from]
    written = {name for each in cell for name in mutated_roots(each)}
    return [name for name in capture.changed if name in held and (name in written or not _is_data(held[name]))]


def _is_data(value: Any) -> bool:
    return is_data(value) and not type(value).__module__.startswith("numpy.random")


def comes_back(names: Collection[str]) -> Iterator[str]:
    """Yield a note on the values that come from the job, if there are any."""
    if names:
        yield f"a cell that reads {listed(sorted(names), _LISTED)} waits for this job, and gets what it has set"
