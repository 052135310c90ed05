"""Describe the form functions: a cell with `model`, `train_data` and `loss`, which Daylight's own loop trains."""

from __future__ import annotations

import ast

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Modules, Source, TrainingForm
from kernel_backend.definition.functions_form import functions_definition
from kernel_backend.definition.reported.source import names_returned


def _recognises(source: Source) -> bool:
    return True


def _parse(source: Source) -> Definition:
    return functions_definition(source.tree, source.roles_from, source.contract)


def _reports(definition: Definition, tree: ast.Module, modules: Modules) -> tuple[str, ...] | None:
    if "loss" not in definition.roles:
        return None
    metrics = definition.functions.get("metrics")
    names = names_returned(tree, metrics.attribute) if metrics else ()
    return None if names is None else ("loss", *names)


FUNCTIONS = TrainingForm(
    name="functions",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.functions:FunctionsTraining",
    advice="have metrics() return it",
    reports=_reports,
    by_role=True,
)
