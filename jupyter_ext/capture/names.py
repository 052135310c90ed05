"""Names in expressions and bodies, by their syntax alone."""

from __future__ import annotations

import ast

from jupyter_ext.capture.facts import FunctionNode

_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Constant)


def root(node: ast.AST) -> tuple[str | None, tuple[str, ...]]:
    """The name at the bottom of `a.b[0].c(1).d`, with the attributes on the way: ("a", ("b", "c", "d"))."""
    path: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript | ast.Starred | ast.Await):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return (node.id if isinstance(node, ast.Name) else None), tuple(reversed(path))


def parameters(arguments: ast.arguments) -> frozenset[str]:
    """All the names in a signature."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return frozenset(each.arg for each in every if each)


def bound(body: list[ast.stmt]) -> set[str]:
    """The local names of a function or class body, whatever they are bound by."""
    names: set[str] = set()
    foreign: set[str] = set()
    queue: list[ast.AST] = list(body)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            foreign |= set(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(each.asname or each.name).split(".")[0] for each in node.names}
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
        if isinstance(node, FunctionNode | ast.ClassDef):
            names.add(node.name)
        elif not isinstance(node, _OWN_SCOPE):
            for part in [getattr(node, name, None) for name in node._fields]:  # quicker than ast.iter_child_nodes
                if isinstance(part, ast.AST):
                    queue.append(part)
                elif type(part) is list:
                    queue += [each for each in part if isinstance(each, ast.AST)]
    return names - foreign
