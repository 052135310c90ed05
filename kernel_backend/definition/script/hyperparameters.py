"""Find in a program's syntax tree the hyperparameters that no function signature declares.

Hyperparameters are constants assigned once at top level or in `main()`, literals in a config (a dict, a class, a
namespace), and defaults of argparse options.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernel_backend.definition.contract import Parameter
from kernel_backend.definition.script.bindings import Scope, changed_within, scopes
from kernel_backend.definition.script.options import options
from kernel_backend.definition.script.refused import refusals
from kernel_backend.definition.script.written import Place, Put
from kernel_backend.model.values import literal

_CONFIGS = frozenset({
    "args", "cfg", "conf", "config", "configs", "hp", "hparams", "hyper_params", "hyperparameters", "hyperparams",
    "opt", "opts", "params", "settings", "trainconfig", "trainingconfig",
})  # fmt: skip
_NAMESPACES = frozenset({"Namespace", "SimpleNamespace", "dict", "EasyDict", "AttrDict"})


@dataclass(frozen=True)
class Constants:
    """Hyperparameters of a program by name, and names that are not hyperparameters, with advice on each."""

    places: Mapping[str, Place]
    refused: Mapping[str, str]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Return the hyperparameters with their types and defaults, by name."""
        return {name: each.parameter for name, each in self.places.items()}


def constants(tree: ast.Module) -> Constants:
    """Return the hyperparameters of a program, in source order."""
    found: dict[str, list[Place]] = defaultdict(list)
    for scope in scopes(tree):
        for place in (*_assigned(scope), *_configured(scope, tree)):
            found[place.name].append(place)
    for place in options(tree):
        found[place.name].append(place)
    once = {name: places[0] for name, places in found.items() if len(places) == 1}
    twice = {name: places for name, places in found.items() if len(places) > 1}
    ordered = dict(sorted(once.items(), key=lambda item: item[1].line))
    return Constants(ordered, refusals(tree, ordered, twice))


def _assigned(scope: Scope) -> Iterator[Place]:
    """Yield where a scope assigns a literal to a name that is never assigned again or mutated."""
    for statement in scope.statements:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            (target,) = statement.targets
            if isinstance(target, ast.Name):
                yield from _one(scope, target, statement.value, Place.attribute(statement, "value"))
            elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                values = statement.value.elts
                if len(target.elts) == len(values):
                    for number, each in enumerate(target.elts):
                        if isinstance(each, ast.Name):
                            yield from _one(scope, each, values[number], Place.item(values, number))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            annotation = ast.unparse(statement.annotation)
            put = Place.attribute(statement, "value")
            yield from _one(scope, statement.target, statement.value, put, annotation)


def _one(scope: Scope, target: ast.Name, value: ast.expr, put: Put, annotation: str | None = None) -> Iterator[Place]:
    name = target.id
    if name.startswith("_") or len(scope.bound[name]) > 1 or name in scope.mutated:
        return
    try:
        default = literal(value)
    except ValueError:
        return
    if default == [] or isinstance(default, dict):
        return
    yield Place(name, target.lineno, put, default, annotation, written=name)


def _configured(scope: Scope, tree: ast.Module) -> Iterator[Place]:
    """Yield where literals stand in dicts, classes and namespaces whose name is that of a configuration."""
    for statement in scope.statements:
        if isinstance(statement, ast.ClassDef):
            if _is_config(statement):
                yield from _of_class(statement, tree)
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id.lower() in _CONFIGS:
            assert isinstance(statement, ast.Assign)
            name = targets[0].id
            if len(scope.bound[name]) == 1:
                yield from _of_value(name, statement.value, tree)


def _of_value(owner: str, value: ast.expr, tree: ast.Module) -> Iterator[Place]:
    if isinstance(value, ast.Dict):
        pairs = [
            (key.value, each, Place.item(value.values, number))
            for number, (key, each) in enumerate(zip(value.keys, value.values, strict=True))
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()
        ]
    elif isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _NAMESPACES:
        pairs = [(each.arg, each.value, Place.attribute(each, "value")) for each in value.keywords if each.arg]
    else:
        return
    yield from _parts(owner, [(name, each, put, None) for name, each, put in pairs], tree)


def _of_class(node: ast.ClassDef, tree: ast.Module) -> Iterator[Place]:
    parts: list[tuple[str, ast.expr, Put, str | None]] = []
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value:
            put = Place.attribute(each, "value")
            parts.append((each.target.id, each.value, put, ast.unparse(each.annotation)))
        elif isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
            parts.append((each.targets[0].id, each.value, Place.attribute(each, "value"), None))
    made = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and ast.unparse(each.func) == node.name]
    given = {keyword.arg for call in made for keyword in call.keywords}
    parts = [each for each in parts[max((len(call.args) for call in made), default=0) :] if each[0] not in given]
    yield from _parts(node.name, parts, tree)


def _parts(owner: str, parts: list[tuple[str, ast.expr, Put, str | None]], tree: ast.Module) -> Iterator[Place]:
    changed = changed_within(tree, owner)
    for name, value, put, annotation in parts:
        if name.startswith("_") or name in changed:
            continue
        try:
            default = literal(value)
        except ValueError:
            continue
        if default != [] and not isinstance(default, dict):
            yield Place(name, value.lineno, put, default, annotation, written=f"{owner}.{name}")


def _is_config(node: ast.ClassDef) -> bool:
    """Return True for a dataclass without bases, or a class without bases and methods that is named like a config."""
    if node.bases or node.keywords:
        return False
    is_dataclass = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    plain = all(isinstance(each, ast.Assign | ast.AnnAssign | ast.Expr | ast.Pass) for each in node.body)
    return is_dataclass or (plain and node.name.lower() in _CONFIGS)
