"""Parse a training definition from its syntax tree, so that notebook, service and runner agree without running code."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from kernel_backend.definition.arguments import called_functions
from kernel_backend.definition.checks import check_prepare
from kernel_backend.definition.command.definition import command_definition
from kernel_backend.definition.contract import CONTRACT, Definition
from kernel_backend.definition.forms import form_of
from kernel_backend.definition.functions_form import functions_definition
from kernel_backend.definition.keras.definition import ROLES as KERAS_ROLES
from kernel_backend.definition.keras.definition import fit_definition, keras_definition
from kernel_backend.definition.keras.fit import keras_fit
from kernel_backend.definition.lightning.definition import lightning_definition
from kernel_backend.definition.loop_form import loop_definition
from kernel_backend.definition.reported.by_form import reports_of
from kernel_backend.definition.script.definition import script_definition
from kernel_backend.definition.trainer.definition import trainer_definition
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import module_tree

_SHOWN = 500  # maximum length of the quoted line


def parse(
    source: str,
    roles_from: int = 1,
    contract: int = CONTRACT,
    modules: Mapping[str, ast.Module] = MappingProxyType({}),
) -> Definition:
    """Return the training definition in `source`; functions above line `roles_from` are helpers, not roles.

    `contract` is the version of the rules for definitions under which the snapshot was made; `modules` are those of the
    user's project. Raises InvalidDefinition (with `details["line"]` and `details["text"]`, and `details["roles"]` if it
    is about roles) for a syntax error, a missing role, a role that is not a function, an argument that Daylight cannot
    provide, a name with two defaults, or code that is nested too deeply.
    """
    try:
        tree = _tree(source)
        definition = _parsed(tree, roles_from, contract, modules)
        return definition.model_copy(update={"reports": reports_of(definition, tree, modules)})
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
        return loop_definition(tree, roles_from)
    if form == "trainer":
        return trainer_definition(tree, roles_from)
    if form == "lightning":
        return lightning_definition(
            tree, roles_from, called_functions(tree, roles_from, ("train_data", "validation_data"))
        )
    if form == "keras":
        return _keras(tree, roles_from)
    if form == "script":
        return script_definition(tree, modules)
    return functions_definition(tree, roles_from, contract)


def _keras(tree: ast.Module, roles_from: int) -> Definition:
    """Return the training definition of a Keras cell, which begins at line `roles_from`."""
    fit = keras_fit(tree, roles_from)
    if fit is not None:
        return fit_definition(tree, fit)
    definition = keras_definition(tree, roles_from, called_functions(tree, roles_from, KERAS_ROLES))
    if "prepare" in definition.roles:
        check_prepare(definition)
    return definition


def _tree(source: str) -> ast.Module:
    try:
        return module_tree(source)
    except SyntaxError as error:
        text = (error.text or "").strip()[:_SHOWN]
        where = f"line {error.lineno}: " if error.lineno else ""  # errors about null characters have no line
        raise InvalidDefinition(f"{where}{error.msg}: {text}", line=error.lineno, text=text) from None
    except ValueError as error:  # null bytes
        raise InvalidDefinition(f"this is no Python source: {error}", line=1, text="") from None
