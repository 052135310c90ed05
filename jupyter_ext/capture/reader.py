"""Reads the facts off a statement's syntax tree, scope by scope."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from jupyter_ext.capture.cells import is_magic
from jupyter_ext.capture.facts import Change, Effects, FunctionNode, Statement
from jupyter_ext.capture.names import bound, objects, parameters, root

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match)
# fmt: off
# Methods that change what they are called on; one that ends in an underscore does too (torch's convention).
_CHANGING = frozenset({
    "append", "appendleft", "extend", "insert", "pop", "popleft", "popitem", "remove", "clear", "update", "setdefault",
    "add", "discard", "sort", "reverse", "load_state_dict", "fit", "partial_fit", "train", "eval", "register",
    "add_module", "register_buffer", "register_parameter", "step", "backward",
})
# Calls that only look: `df.head()` in a cell of its own changes nothing.
_LOOKING = frozenset({
    "print", "display", "pprint", "len", "type", "repr", "str", "help", "dir", "id", "sum", "min", "max", "list",
    "sorted", "isinstance", "hasattr", "summary", "head", "tail", "describe", "info", "plot", "hist", "show", "sample",
    "value_counts", "isnull", "isna", "mean", "std", "unique", "numel", "tolist", "numpy", "keys", "values", "items",
    "get", "parameters", "named_parameters", "state_dict", "size", "shape", "item", "savefig", "count", "index", "copy",
})
# fmt: on


def read(statement: Statement, last: ast.stmt) -> None:
    """Fill in the facts of a statement; `last` is the one that its cell ends with."""
    reader = _Reader(statement)
    for node in statement.nodes:
        reader.last = node is last
        reader.visit(node)


@dataclass
class _Scope:
    names: set[str]
    is_class: bool = False
    is_function: bool = False
    effects: Effects | None = None
    parameters: frozenset[str] = frozenset()
    aliases: dict[str, str] = field(default_factory=dict)


class _Reader(ast.NodeVisitor):
    def __init__(self, statement: Statement) -> None:
        self.out = statement
        self.scopes: list[_Scope] = []
        self.branches = 0
        self.last = False
        self.bound: set[str] = set()  # by this statement already, on every way to here
        self.annotating = False

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
        elif not self._is_local(name):  # `global name` in a function
            self._effect(name)

    def _effect(self, name: str) -> None:
        for scope in self.scopes:
            if scope.effects is not None:
                scope.effects.changes.add(name)

    def _change(self, node: ast.AST, how: str, function: str | None = None, *, looked: bool = False) -> None:
        name, path = root(node)
        if name is None:
            return
        for scope in reversed(self.scopes):
            name = scope.aliases.get(name, name)
        if self._is_local(name):
            for scope in self.scopes:
                if scope.effects is not None and name in scope.parameters:
                    scope.effects.arguments = True
        elif self._deferred:
            self._effect(name)
        else:
            self.out.changes.append(Change(name, how, path, function, looked and self.last))

    # Statements

    def generic_visit(self, node: ast.AST) -> None:
        if not isinstance(node, _BRANCHES):
            super().generic_visit(node)
            return
        before, self.branches = set(self.bound), self.branches + 1
        for _, part in ast.iter_fields(node):
            for each in part if isinstance(part, list) else [part]:
                if isinstance(each, ast.AST):
                    self.visit(each)
            if isinstance(part, list):
                self.bound = set(before)  # another branch does not see what this one binds
        self.bound, self.branches = before, self.branches - 1

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            package = each.name.split(".")[0]
            name = each.asname or package
            self._bind(name)
            if not self.scopes:
                self.out.imports[name] = package
                if "." in each.name and not each.asname:
                    self.out.dotted.add(package)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            if each.name == "*":
                self.out.star = True
            else:
                self._bind(each.asname or each.name)
                if not self.scopes:
                    self.out.imports[each.asname or each.name] = (node.module or ".").split(".")[0]

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._store(target, node.value)
        if all(isinstance(each, ast.Name) and each.id == "_" for each in node.targets):
            self._effect_of_call(node.value)
        for each in [*([] if is_magic(node) else [node.value]), *node.targets]:
            self.visit(each)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        if node.value is not None:  # `x: int` alone binds nothing
            self._store(node.target, node.value)
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            if not self._is_local(node.target.id):
                self._read(node.target.id)
            self._change(node.target, "store")
        else:
            self._store(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._alias(node.target, node.value)
        self.visit(node.value)
        self.visit(node.target)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self._store(target, None)
                self.visit(target)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._store(node.target, node.iter)
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

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._store(node.optional_vars, node.context_expr)
        self.generic_visit(node)

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

    def visit_Expr(self, node: ast.Expr) -> None:
        if not is_magic(node):  # which stays out of the module
            self._effect_of_call(node.value)
            self.generic_visit(node)

    def _store(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._store(each, value)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            self._change(target, "store")
        elif value is not None:
            self._alias(target, value)

    def _alias(self, target: ast.expr, value: ast.expr) -> None:
        """`h = net.head` and `opt = SGD(net.parameters())`: to change h, or to step opt, is to change net."""
        if not isinstance(target, ast.Name):
            return
        for name in objects(value):
            if self.scopes:
                self.scopes[-1].aliases[target.id] = name
            else:
                self.out.aliases.append((target.id, name))

    def _effect_of_call(self, node: ast.expr) -> None:
        """A call whose value nobody keeps was made for what it changes, unless it only looks."""
        if isinstance(node, ast.Await):
            node = node.value
        if not isinstance(node, ast.Call):
            return
        name, path = root(node.func)
        if set(path or [name]) <= _LOOKING or (path and path[-1] in _LOOKING):
            return
        if path:
            self._change(node.func, "method", looked=True)
        for argument in [*node.args, *(each.value for each in node.keywords)]:
            self._change(argument, "argument", name, looked=True)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name):
            if not self._is_local(node.func.id):
                self._called(node.func.id)
            if node.func.id in ("setattr", "delattr") and node.args:
                self._change(node.args[0], "store")
        elif isinstance(node.func, ast.Attribute):
            changing = node.func.attr in _CHANGING or (
                node.func.attr.endswith("_") and not node.func.attr.startswith("_")
            )
            if changing:
                self._change(node.func, "method")
                for argument in node.args if node.func.attr.endswith("_") else ():
                    self._change(argument, "argument")
        self.generic_visit(node)

    def _called(self, name: str) -> None:
        if not self._deferred:
            self.out.calls.add(name)
        for scope in self.scopes:
            if scope.effects is not None:
                scope.effects.calls.add(name)

    # Scopes

    def visit_FunctionDef(self, node: FunctionNode) -> None:
        self._decorators(node.decorator_list)
        self._signature(node.args)
        if node.returns:
            self._annotation(node.returns)
        self._bind(node.name)
        self._body(node.name, node.body, parameters(node.args), is_function=True)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._signature(node.args)
        names = parameters(node.args)
        self.scopes.append(_Scope(set(names), is_function=True, effects=Effects(), parameters=names))
        self.visit(node.body)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._decorators(node.decorator_list)
        for each in [*node.bases, *(keyword.value for keyword in node.keywords)]:
            self.visit(each)
        self._body(node.name, node.body, frozenset(), is_function=False)
        self._bind(node.name)

    def _decorators(self, decorators: Iterable[ast.expr]) -> None:
        for each in decorators:
            called = each.func if isinstance(each, ast.Call) else each
            if isinstance(called, ast.Name):
                self._called(called.id)
            else:
                self._change(called, "method")
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

    def _body(self, name: str, body: list[ast.stmt], parameters: frozenset[str], *, is_function: bool) -> None:
        effects = Effects()
        names = bound(body) | parameters
        self.scopes.append(_Scope(names, not is_function, is_function, effects, parameters))
        branches, self.branches = self.branches, 0
        for statement in body:
            self.visit(statement)
        self.branches = branches
        self.scopes.pop()
        if not self.scopes:
            self.out.effects[name] = effects

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        targets = {each.id for gen in node.generators for each in ast.walk(gen.target) if isinstance(each, ast.Name)}
        self.visit(node.generators[0].iter)
        scope = _Scope(targets)
        self.scopes.append(scope)
        for index, generator in enumerate(node.generators):
            for held in objects(generator.iter)[:1]:
                scope.aliases |= {t.id: held for t in ast.walk(generator.target) if isinstance(t, ast.Name)}
            for each in [*([generator.iter] if index else []), *generator.ifs]:
                self.visit(each)
        for value in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(value)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815
