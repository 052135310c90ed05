"""Find in a program's syntax tree the lines at which top-level names are bound or their objects mutated."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_backend.definition.trainer.cell import statements
from kernel_backend.model.syntax import FunctionNode

MAIN = "main"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MUTATING = frozenset({
    "add", "append", "appendleft", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault",
    "sort", "update",
})  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """Statements that run once, from top to bottom: a module's top level, or the body of its function `main`."""

    statements: Sequence[ast.stmt]
    bound: Mapping[str, Sequence[int]]  # lines at which each name is bound
    mutated: frozenset[str]  # names whose values are mutated


def scopes(tree: ast.Module) -> Iterator[Scope]:
    """Yield the module's own scope, and that of a function `main` without required arguments."""
    body = statements(tree.body)
    mutated = frozenset(_mutated(tree))
    bound = bound_by(body)
    for function in (each for each in ast.walk(tree) if isinstance(each, FunctionNode)):
        named = {name for each in ast.walk(function) if isinstance(each, ast.Global) for name in each.names}
        for name, lines in bound_by(function.body).items():
            if name in named:
                bound[name] += lines
    yield Scope(body, bound, mutated)
    for each in body:
        if isinstance(each, ast.FunctionDef) and each.name == MAIN and not each.args.args:
            yield Scope(each.body, bound_by(each.body), mutated)


def changed_within(tree: ast.Module, owner: str) -> set[str]:
    """Return the attributes and keys that the program sets on the object `owner`, as in `config.lr = ...`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            if not isinstance(node.value, ast.Name) or node.value.id != owner:
                continue
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node.slice, ast.Constant):
                found.add(str(node.slice.value))
    return found


def changed_by(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, and those of objects in which it sets or mutates something.

    Examples
    --------
    >>> sorted(changed_by(ast.parse("for a in b:\\n    c['d'].append(a)\\n    e.f = a").body[0]))
    ['a', 'c', 'e']
    """
    return set(bound_by([statement])) | set(mutated_roots(statement))


def mutated_roots(node: ast.AST) -> Iterator[str]:
    """Yield the names of objects in which the code sets an attribute or item, or of which it mutates some part."""
    for each in ast.walk(node):
        owner: ast.expr | None = None
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _MUTATING:
            owner = each.func.value
        elif isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            owner = each.value
        while isinstance(owner, ast.Attribute | ast.Subscript):
            owner = owner.value
        if isinstance(owner, ast.Name):
            yield owner.id


def names_read(definition: ast.AST) -> set[str]:
    """Return the names that a function or class reads when it is defined: defaults, decorators, a class's own body.

    Examples
    --------
    >>> names_read(ast.parse("def f(a=b):\\n    return c").body[0])
    {'b'}
    """
    found: set[str] = set()
    queue: list[ast.AST] = [definition]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        if isinstance(node, FunctionNode):
            queue += [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.Lambda):
            queue.append(node.args)
        else:
            queue += ast.iter_child_nodes(node)
    return found


def bound_by(body: Sequence[ast.stmt]) -> defaultdict[str, list[int]]:
    """Return, by name, the lines at which the statements of a scope bind the name, functions and classes included."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    queue: list[ast.AST] = list(body)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id].append(node.lineno)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]].append(node.lineno)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | FunctionNode | ast.ClassDef):
            found[node.name or ""].append(node.lineno)
        if not isinstance(node, _SCOPES + _COMPREHENSIONS):
            queue += ast.iter_child_nodes(node)
    for lines in found.values():
        lines.sort()
    return found


def _mutated(tree: ast.Module) -> Iterator[str]:
    """Yield the names of objects that a program mutates by calling a method or by setting an item or a slice."""
    for node in ast.walk(tree):
        owner: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATING:
            owner = node.func.value
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            owner = node.value
        if isinstance(owner, ast.Name):
            yield owner.id
