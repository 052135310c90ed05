"""Collect the names that a statement binds and reads from its syntax tree, scope by scope."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jupyter_ext.capture.cells import is_magic
from jupyter_ext.capture.facts import FunctionNode, Statement
from jupyter_ext.capture.names import local_names, parts

_BRANCHES = {ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match}


def read(statement: Statement) -> None:
    """Collect into a statement the names that it binds and reads."""
    reader = _Reader(statement)
    for node in statement.nodes:
        reader.visit(node)


@dataclass
class _Scope:
    names: frozenset[str]
    is_class: bool = False
    is_function: bool = False


class _Reader(ast.NodeVisitor):
    def __init__(self, statement: Statement) -> None:
        self.out = statement
        self.scopes: list[_Scope] = []
        self.branches = 0
        self.bound: set[str] = set()  # certainly bound by this statement already
        self.annotating = False
        self.consumed: set[ast.GeneratorExp] = set()  # consumed by the call that takes them as arguments

    def visit(self, node: ast.AST) -> None:
        """Call the visitor for a node's class, found in a table: the base class's lookup by name is slow."""
        kind = node.__class__
        if kind not in _VISITS:
            _VISITS[kind] = getattr(_Reader, f"visit_{kind.__name__}", _Reader.generic_visit)
        _VISITS[kind](self, node)

    # Names

    def _is_local(self, name: str) -> bool:
        inner = len(self.scopes) - 1
        return any(
            name in scope.names for depth, scope in enumerate(self.scopes) if depth == inner or not scope.is_class
        )

    @property
    def _deferred(self) -> bool:
        return any(scope.is_function for scope in self.scopes)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        elif isinstance(node.ctx, ast.Load) and not self._is_local(node.id):
            self._read(node.id)

    def _read(self, name: str) -> None:
        if self._deferred:
            self.out.later.add(name)
        elif self.annotating:
            self.out.annotations.add(name)
        elif name not in self.bound:
            self.out.now.add(name)

    def _bind(self, name: str) -> None:
        if not self.scopes:
            self.out.binds[name] = self.out.binds.get(name, True) and self.branches > 0
            self.bound.add(name)

    # Statements

    def generic_visit(self, node: ast.AST) -> None:
        if node.__class__ not in _BRANCHES:
            for each in parts(node):
                self.visit(each)
            return
        before, self.branches = set(self.bound), self.branches + 1
        for _, part in ast.iter_fields(node):
            for each in part if isinstance(part, list) else [part]:
                if isinstance(each, ast.AST):
                    self.visit(each)
            if isinstance(part, list):
                self.bound = set(before)  # other branches do not see these bindings
        self.bound, self.branches = before, self.branches - 1

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            package = each.name.split(".")[0]
            self._import(package)
            name = each.asname or package
            self._bind(name)
            if not self.scopes:
                self.out.imports[name] = package
                if "." in each.name and not each.asname:
                    self.out.dotted.add(package)

    def _import(self, package: str) -> None:
        (self.out.packages_later if self._deferred else self.out.packages).add(package)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._import((node.module or ".").split(".")[0])
        for each in node.names:
            if each.name == "*":
                self.out.star = True
            else:
                self._bind(each.asname or each.name)
                if not self.scopes:
                    self.out.imports[each.asname or each.name] = (node.module or ".").split(".")[0]

    def visit_Assign(self, node: ast.Assign) -> None:
        for each in [*([] if is_magic(node) else [node.value]), *node.targets]:
            self.visit(each)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        if node.value is not None:  # `x: int` alone binds nothing
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and not self._is_local(node.target.id):
            self._read(node.target.id)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self.visit(target)
            elif not self.scopes:
                self._read(target.id)
                self.out.binds.setdefault(target.id, True)
                self.bound.discard(target.id)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        before, self.branches = set(self.bound), self.branches + 1
        self.visit(node.target)
        for each in node.body:
            self.visit(each)
        self.bound = before
        for each in node.orelse:
            self.visit(each)
        self.bound, self.branches = before, self.branches - 1

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self._bind(node.rest)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not is_magic(node):  # magics are not part of the module
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "__subclasses__":
            self.out.counts_subclasses = True
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval") and not self.scopes and node.args:
            self._text(node.args[0])
        self.consumed.update(each for each in node.args if isinstance(each, ast.GeneratorExp))
        self.generic_visit(node)

    def _text(self, node: ast.expr) -> None:
        """Visit the code in a top-level `exec("x = 1")` as if it stood in the statement itself."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                statements = ast.parse(node.value).body
            except (SyntaxError, ValueError):
                return
            for each in statements:
                self.visit(each)

    # Scopes

    def visit_FunctionDef(self, node: FunctionNode) -> None:
        self._decorators(node.decorator_list)
        self._signature(node.args)
        if node.returns:
            self._annotation(node.returns)
        self._bind(node.name)
        self._body(node, is_function=True)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._signature(node.args)
        self.scopes.append(_Scope(local_names(node), is_function=True))
        self.visit(node.body)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._decorators(node.decorator_list)
        for each in [*node.bases, *(keyword.value for keyword in node.keywords)]:
            self.visit(each)
        self._body(node, is_function=False)
        self._bind(node.name)

    def _decorators(self, decorators: Iterable[ast.expr]) -> None:
        for each in decorators:
            self.visit(each)

    def _signature(self, arguments: ast.arguments) -> None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [each for each in (arguments.vararg, arguments.kwarg) if each]
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            self.visit(default)
        for argument in every:
            if argument.annotation:
                self._annotation(argument.annotation)

    def _annotation(self, node: ast.expr) -> None:
        before, self.annotating = self.annotating, True
        self.visit(node)
        self.annotating = before

    def _body(self, node: FunctionNode | ast.ClassDef, *, is_function: bool) -> None:
        self.scopes.append(_Scope(local_names(node), not is_function, is_function))
        branches, self.branches = self.branches, 0
        for statement in node.body:
            self.visit(statement)
        self.branches = branches
        self.scopes.pop()

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        targets = {each.id for gen in node.generators for each in ast.walk(gen.target) if isinstance(each, ast.Name)}
        self.visit(node.generators[0].iter)
        deferred = isinstance(node, ast.GeneratorExp) and node not in self.consumed
        if deferred and not self._deferred:
            self.out.later |= self._free(node)
        self.scopes.append(_Scope(frozenset(targets)))
        for index, generator in enumerate(node.generators):
            for each in [*([generator.iter] if index else []), *generator.ifs]:
                self.visit(each)
        for value in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(value)
        self.scopes.pop()

    def _free(self, node: ast.AST) -> set[str]:
        names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        return {each.id for each in names} - {each.id for each in names if isinstance(each.ctx, ast.Store)}

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815


_VISITS: dict[type[ast.AST], Callable[[_Reader, Any], None]] = {}
