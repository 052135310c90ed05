"""Find the folders from which Hydra reads a module's configuration: `@hydra.main(config_path="conf")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jupyter_ext.project.files import Tree

_READERS = ("main", "initialize")


class ConfigPath(NamedTuple):
    """Argument `config_path` of Hydra: its text, relative to the module's folder, and the line of the call."""

    text: str
    line: int


def config_paths(tree: ast.Module) -> list[ConfigPath]:
    """Return the literal `config_path` of each call of `hydra.main` and `hydra.initialize` in a module."""
    packages, readers = _hydra_names(tree)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _reads(node.func, packages, readers))
    return [ConfigPath(text, call.lineno) for call in calls if (text := _config_path(call)) and "://" not in text]


def config_files(folder: Path, tree: Tree) -> Iterator[Path]:
    """Yield the YAML files below a folder of configuration, but those in hidden folders, where Hydra keeps results."""
    for path, _ in tree.files(folder):
        if path.suffix == ".yaml" and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _hydra_names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the names of the package Hydra in a module, and those of its functions that read configuration."""
    packages, readers = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {each.asname or each.name for each in node.names if each.name == "hydra"}
        elif isinstance(node, ast.ImportFrom) and node.module == "hydra":
            readers |= {each.asname or each.name for each in node.names if each.name in _READERS}
    return packages, readers


def _reads(function: ast.expr, packages: set[str], readers: set[str]) -> bool:
    match function:
        case ast.Name(id=name):
            return name in readers
        case ast.Attribute(value=ast.Name(id=package), attr=name):
            return package in packages and name in _READERS
    return False


def _config_path(call: ast.Call) -> str:
    given = next((each.value for each in call.keywords if each.arg == "config_path"), next(iter(call.args), None))
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""
