"""Find the names of the values by which a training definition can be judged, as far as its source shows them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.reported.source import names_in_source, names_returned
from kernel_backend.definition.script.loops import training_loops, training_statements
from kernel_backend.definition.script.modules import without_program


def reports_of(definition: Definition, tree: ast.Module, modules: Mapping[str, ast.Module]) -> tuple[str, ...] | None:
    """Return the names of all values that a definition reports, those of training too; None if its source hides some.

    `tree` is the definition's syntax tree, and `modules` those of the user's project.
    """
    others = without_program(modules, definition.command)
    trees = {"": tree, **others}
    if definition.stepped_by == "script":
        begin = min((each.lineno for each in training_statements(tree)), default=0)
        return names_in_source(trees, training_loops(tree, others), begin=begin)
    if definition.stepped_by == "loop":
        return names_in_source(trees, heard={"report"})
    if definition.stepped_by == "lightning":
        return names_in_source(trees, heard={"log", "log_dict"})
    if definition.stepped_by == "functions" and "loss" in definition.roles:
        metrics = definition.functions.get("metrics")
        names = names_returned(tree, metrics.attribute) if metrics else ()
        return None if names is None else ("loss", *names)
    return None
