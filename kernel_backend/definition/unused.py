"""Classify the functions of a cell: aliases of roles, helpers, and unused ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from kernel_backend.definition.aliases import looks_like, role_of
from kernel_backend.definition.contract import REQUIRED, ROLES, is_role
from kernel_backend.model.syntax import FunctionNode
from kernel_backend.model.values import nearest


def understood_as(tree: ast.Module, own: Sequence[FunctionNode], roles: Sequence[str]) -> dict[str, str]:
    """Return the roles of functions whose names are aliases of roles that the cell lacks, by name of the function.

    For example `{"criterion": "loss"}`. `own` are the functions of the submitted cell.
    """
    names, used = {node.name for node in own}, names_used(tree)
    asked = {each.arg for node in own for each in node.args.args}
    taken: dict[str, str] = {}
    for role in roles:
        candidates = [name for name in names if role not in names and role_of(name) == role]
        idle = [name for name in candidates if name not in used]
        if len(idle) > 1:  # def train_loader(train_set)
            idle = [name for name in idle if name not in asked]
        if len(idle) == 1:
            taken[idle[0]] = role
        elif not idle and len(candidates) == 1 and role in REQUIRED:
            taken[candidates[0]] = role
    return taken


def names_used(tree: ast.Module) -> set[str]:
    """Return the module-level names that the module's code reads."""
    used: set[str] = set()
    queue: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while queue:
        node, local = queue.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in local:
            used.add(node.id)
        inner = local | _local(node) if isinstance(node, FunctionNode | ast.Lambda) else local
        queue += [(each, inner) for each in ast.iter_child_nodes(node)]
    return used


def _local(node: FunctionNode | ast.Lambda) -> set[str]:
    within = list(ast.walk(node))
    stored = {each.id for each in within if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored | {each.arg for each in within if isinstance(each, ast.arg)}


def bound(tree: ast.Module, roles_from: int) -> Iterator[tuple[str, int, str | None]]:
    """Yield each name that the cell binds, with the line and kind of its last binding.

    The cell begins at line `roles_from`. The kind is a word such as `assigned`, `imported` or `a class`; it is None for
    a function.
    """
    last: dict[str, tuple[int, str | None]] = {}
    for node in tree.body:
        if node.lineno < roles_from:
            continue
        if isinstance(node, FunctionNode):
            last[node.name] = node.lineno, "asynchronous" if isinstance(node, ast.AsyncFunctionDef) else None
        elif isinstance(node, ast.ClassDef):
            last[node.name] = node.lineno, "a class"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            last |= {each.id: (node.lineno, "assigned") for each in targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            last |= {each.asname or each.name: (node.lineno, "imported") for each in node.names}
    return ((name, line, how) for name, (line, how) in last.items())


def _idle(tree: ast.Module, own: Sequence[FunctionNode], taken: Mapping[str, str]) -> Iterator[FunctionNode]:
    """Yield the cell's functions that have no role and to which no code refers.

    `own` are the functions of the cell, and `taken` are those that have a role by an alias, such as `criterion`.
    """
    asked = {node.arg for each in tree.body if isinstance(each, FunctionNode) for node in each.args.args}
    busy = names_used(tree) | asked | set(taken)
    return (node for node in own if not is_role(node.name) and node.name not in busy)


def hints(tree: ast.Module, own: Sequence[FunctionNode], taken: Mapping[str, str]) -> Iterator[str]:
    """Yield hints about unused functions whose names slightly resemble a role's.

    Those that resemble it closely are reported by `unused`. `own` are the functions of the cell, and `taken` those that
    have a role by an alias.
    """
    for node in _idle(tree, own, taken):
        near = nearest(node.name, ROLES)
        if near and not looks_like(node.name):
            yield f"{node.name} (line {node.lineno}) is no role, and nothing uses it{near}"


def unused(
    tree: ast.Module, own: Sequence[FunctionNode], taken: Mapping[str, str], roles: Sequence[str], roles_from: int
) -> Iterator[str]:
    """Yield warnings about unused functions and assignments that were probably meant as roles.

    `own` are the functions of the cell, which begins at line `roles_from`; `taken` are those that have a role by an
    alias, and `roles` are the roles that the cell has.
    """
    for node in _idle(tree, own, taken):
        if meant := looks_like(node.name):
            yield f"{node.name} (line {node.lineno}) is no role, and nothing uses it: did you mean {meant}?"
    used = names_used(tree)
    for name, line, how in bound(tree, roles_from):
        role = None if name in used else role_of(name)
        if how == "assigned" and role not in (None, "model", *roles):
            yield f"{name} is assigned on line {line}, and nothing uses it: write def {role}(...) that returns it"
    metrics = [(name, line) for name, line in _metric_objects(tree, roles_from) if name not in {*used, *taken, *roles}]
    for name, line in metrics:
        listed = ", ".join(f'"{each}": {each}' for each, _ in metrics)
        way_out = "return it from metrics" if "metrics" in roles else f"write metrics = {{{listed}}}"
        yield f"{name} (line {line}) is a metric that nothing uses: {way_out}."


def _metric_objects(tree: ast.Module, roles_from: int) -> Iterator[tuple[str, int]]:
    """Yield the variables to which the cell assigns torchmetrics objects, with their lines."""
    imported: set[str] = set()
    for node in tree.body:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        for each in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if (module or each.name).split(".")[0] == "torchmetrics":
                imported.add(each.asname or each.name.split(".")[0])
    for node in tree.body:
        if not isinstance(node, ast.Assign) or node.lineno < roles_from or not isinstance(node.value, ast.Call):
            continue
        maker: ast.expr = node.value.func
        while isinstance(maker, ast.Attribute):
            maker = maker.value
        if isinstance(maker, ast.Name) and maker.id in imported:
            yield from ((each.id, node.lineno) for each in node.targets if isinstance(each, ast.Name))
