"""Parse a training definition from its syntax tree, so that notebook, service and runner agree without running code."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from kernel_backend.definition.contract import CONTRACT, Definition
from kernel_backend.definition.form import Source
from kernel_backend.definition.forms.registry import form_named, form_of
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.syntax import module_tree

_SHOWN = 500  # maximum length of the quoted line


def parse(
    source: str,
    roles_from: int = 1,
    contract: int = CONTRACT,
    modules: Mapping[str, ast.Module] = MappingProxyType({}),
    stored: str | None = None,
) -> Definition:
    """Return the training definition in `source`; functions above line `roles_from` are helpers, not roles.

    `contract` is the version of the rules for definitions under which the snapshot was made; `modules` are those of the
    user's project; `stored` is the form that the snapshot names, and None for a new cell. Raises InvalidDefinition
    (with `details["line"]` and `details["text"]`, and `details["roles"]` if it is about roles) for a syntax error, a
    missing role, a role that is not a function, an argument that Daylight cannot provide, a name with two defaults, or
    code that is nested too deeply.
    """
    try:
        found = Source(_tree(source), roles_from, modules, contract)
        definition = form_of(found, stored).parse(found)
        reports = form_named(definition.stepped_by).reports(definition, found.tree, modules)
        return definition.model_copy(update={"reports": reports})
    except (RecursionError, MemoryError):  # raised by Python's parser for code that is nested too deeply
        raise InvalidDefinition("an expression is nested too deeply to be read: split it into several") from None


def parse_snapshot(
    source: str, snapshot: Snapshot, modules: Mapping[str, ast.Module] = MappingProxyType({})
) -> Definition:
    """Return the training definition in a snapshot's `source`, by the rules and the form with which it was submitted.

    `modules` are those of the user's project. Raises InvalidDefinition, as `parse` does, and if the package of its
    form is missing.
    """
    return parse(source, snapshot.roles_from, snapshot.contract, modules, snapshot.form)


def _tree(source: str) -> ast.Module:
    try:
        return module_tree(source)
    except SyntaxError as error:
        text = (error.text or "").strip()[:_SHOWN]
        where = f"line {error.lineno}: " if error.lineno else ""  # errors about null characters have no line
        raise InvalidDefinition(f"{where}{error.msg}: {text}", line=error.lineno, text=text) from None
    except ValueError as error:  # null bytes
        raise InvalidDefinition(f"this is no Python source: {error}", line=1, text="") from None
