"""Rewrite a program's training loops, so that each iteration's start and each loop's end call the runner.

    if _daylight_begin(SITE):                     # the loop was finished before the checkpoint
        if _daylight_returns(SITE):               # only where a `return` lies within
            return _daylight_returned(SITE)
    else:
        for T in _daylight_loop(SITE, IT): ...
        # or: while _daylight_head(SITE) and TEST and _daylight_enter(SITE): ...
    _daylight_leave(SITE)

A `return VALUE` within the loop becomes `return _daylight_return(SITE, VALUE)`. Generator functions get a decorator
that tracks the position of their generators. Other code and line numbers do not change.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kernel_backend.definition.script.loops import TrainingLoop

BEGIN, LEAVE, LOOP = "_daylight_begin", "_daylight_leave", "_daylight_loop"
HEAD, ENTER = "_daylight_head", "_daylight_enter"
GENERATOR = "_daylight_generator"
RETURNS, RETURNED, RETURN = "_daylight_returns", "_daylight_returned", "_daylight_return"
CELL = "_daylight_cell"


@dataclass(frozen=True)
class Site:
    """Rewritten loop: its location, and the rewritten loop around it in the same function, if any."""

    key: str
    loop: TrainingLoop
    parent: str | None = None

    @property
    def place(self) -> str:
        """Return the loop's line for messages, such as `line 14`."""
        return f"line {self.loop.line}" + (f" of {self.loop.module}" if self.loop.module else "")


def rewritten(tree: ast.Module, module: str, loops: Sequence[TrainingLoop]) -> tuple[ast.Module, tuple[Site, ...]]:
    """Rewrite the training loops of one module in place; return the tree and the rewritten loops.

    Examples
    --------
    >>> from kernel_backend.definition.script.loops import training_loops
    >>> program = ast.parse("for x in data: loss(x).backward()")
    >>> tree, sites = rewritten(program, "", training_loops(program))
    >>> [each.key for each in sites]
    [':1:0']
    """
    own = {each.line: each for each in loops if each.module == module and each.saved}
    change = _Rewriting(module, own)
    change.visit(tree)
    return ast.fix_missing_locations(tree), tuple(change.sites)


def marked(tree: ast.Module, roles_from: int) -> bool:
    """Insert a call of `CELL` where the submitted cell begins, at line `roles_from`.

    Return False, without a change, if no code of earlier cells comes before it.
    """
    above = sum(each.lineno < roles_from for each in tree.body)
    if 0 < above < len(tree.body):
        reached = ast.Expr(ast.Call(ast.Name(CELL, ast.Load()), [], []))
        _place(reached, tree.body[above])
        tree.body.insert(above, reached)
        return True
    return False


class _Rewriting(ast.NodeTransformer):
    def __init__(self, module: str, loops: dict[int, TrainingLoop]) -> None:
        self._module, self._loops = module, loops
        self._around: list[str] = []  # sites that enclose the visited node in its function, outermost first
        self.sites: list[Site] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        around, self._around = self._around, []
        found = len(self.sites)
        self.generic_visit(node)
        self._around = around
        if len(self.sites) == found and not node.decorator_list and _yields(node.body):
            node.decorator_list = [_at(ast.Name(GENERATOR, ast.Load()), node)]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        around, self._around = self._around, []
        self.generic_visit(node)
        self._around = around
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        site = self._site(node)
        if site is None:
            return self.generic_visit(node)
        node.iter = _at(_call(LOOP, site.key, self.visit(node.iter)), node.iter)
        return self._around_loop(node, site)

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        site = self._site(node)
        if site is None:
            return self.generic_visit(node)
        head = _at(_call(HEAD, site.key), node.test)
        enter = _at(_call(ENTER, site.key), node.test)
        node.test = _at(ast.BoolOp(ast.And(), [head, self.visit(node.test), enter]), node.test)
        return self._around_loop(node, site)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if self._around:
            value = node.value or _at(ast.Constant(None), node)
            node.value = _at(_call(RETURN, self._around[-1], value), node)
        return node

    def _site(self, node: ast.For | ast.While) -> Site | None:
        loop = self._loops.get(node.lineno)
        if loop is None:
            return None
        key = f"{self._module}:{node.lineno}:{node.col_offset}"
        return Site(key, loop, self._around[-1] if self._around else None)

    def _around_loop(self, node: ast.For | ast.While, site: Site) -> list[ast.stmt]:
        self.sites.append(site)
        returns = has_return([*node.body, *node.orelse])
        self._around.append(site.key)
        node.body = self._visited(node.body)
        node.orelse = self._visited(node.orelse)
        self._around.pop()
        returned: list[ast.stmt] = [ast.Pass()]
        if returns:
            returned = [ast.If(_call(RETURNS, site.key), [ast.Return(_call(RETURNED, site.key))], [])]
        choice = ast.If(_call(BEGIN, site.key), returned, [node])
        leave = ast.Expr(_call(LEAVE, site.key))
        for each in (*returned, choice, leave):
            _place(each, node)
        return [choice, leave]

    def _visited(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for each in body:
            changed = self.visit(each)
            found += changed if isinstance(changed, list) else [changed]
        return found


def has_return(body: Collection[ast.AST]) -> bool:
    """Return True if statements contain a `return` of their own function."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    return any(
        isinstance(each, ast.Return) or (not isinstance(each, inner) and has_return(list(ast.iter_child_nodes(each))))
        for each in body
    )


def _yields(body: Collection[ast.AST]) -> bool:
    """Return True if a function with these statements is a generator function."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    return any(
        isinstance(each, ast.Yield | ast.YieldFrom)
        or (not isinstance(each, inner) and _yields(list(ast.iter_child_nodes(each))))
        for each in body
    )


def _call(name: str, site: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(site), *arguments], [])


def _at(new: ast.expr, old: ast.AST) -> ast.expr:
    return ast.copy_location(new, old)


def _place(new: ast.stmt, loop: ast.stmt) -> None:
    """Give all nodes of a new statement that have no line number yet the line of `loop`, which it belongs to."""
    for each in ast.walk(new):
        if isinstance(each, ast.stmt | ast.expr) and not hasattr(each, "lineno"):
            each.lineno = each.end_lineno = loop.lineno
            each.col_offset, each.end_col_offset = loop.col_offset, loop.col_offset + 1
