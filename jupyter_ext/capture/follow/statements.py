"""Apply the effects of each kind of statement to the abstract state."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow.abstract_objects import NOTHING, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState, Visits
from jupyter_ext.capture.follow.calls import call
from jupyter_ext.capture.follow.iteration import iterate
from jupyter_ext.capture.follow.mutations import change, use_random
from jupyter_ext.capture.follow.objects import branch_on, call_methods
from jupyter_ext.capture.follow.sources import module_imported_by, random_use
from jupyter_ext.capture.follow.syntax import loaded
from jupyter_ext.capture.follow.targets import rebind, store
from jupyter_ext.capture.loaded import star_names


def _branch(state: AbstractState, node: ast.If | ast.Try | ast.TryStar) -> Value:
    state.branches += 1
    if isinstance(node, ast.If):
        branch_on(state, node.test)
        state.visit_all([*node.body, *node.orelse])
    else:
        state.visit_parts(node)
    state.branches -= 1
    return NOTHING


def _loop(state: AbstractState, node: ast.For | ast.AsyncFor | ast.While) -> Value:
    state.branches += 1
    for _ in range(2):
        if isinstance(node, ast.While):
            branch_on(state, node.test)
        else:
            store(state, node.target, iterate(state, state.visit(node.iter)))
        state.visit_all(node.body)
    state.visit_all(node.orelse)
    state.branches -= 1
    return NOTHING


def _with(state: AbstractState, node: ast.With | ast.AsyncWith) -> Value:
    for item in node.items:
        manager = state.visit(item.context_expr)
        given = call_methods(state, manager, ("__enter__", "__aenter__"), [], item)
        call_methods(state, manager, ("__exit__", "__aexit__"), [], item)
        given |= iterate(state, manager)  # @contextmanager
        if item.optional_vars is not None:
            store(state, item.optional_vars, frozenset(given | manager))
    state.visit_all(node.body)
    return NOTHING


def _handler(state: AbstractState, node: ast.ExceptHandler) -> Value:
    if node.type:
        state.visit(node.type)
    if node.name:
        state.bind(node.name, NOTHING)
    state.visit_all(node.body)
    return NOTHING


def _bind_pattern(state: AbstractState, pattern: ast.pattern, value: Value) -> None:
    for each in ast.walk(pattern):
        name = getattr(each, "rest" if isinstance(each, ast.MatchMapping) else "name", None)
        if isinstance(name, str):
            state.bind(name, value)


def _match(state: AbstractState, node: ast.Match) -> Value:
    subject = state.visit(node.subject)
    state.branches += 1
    for case in node.cases:
        _bind_pattern(state, case.pattern, subject | parts_of(subject))
        if case.guard:
            branch_on(state, case.guard)
        state.visit_all(case.body)
    state.branches -= 1
    return NOTHING


def _import(state: AbstractState, node: ast.Import) -> Value:
    for each in node.names:
        package, _, path = each.name.partition(".")
        _run_module(state, each.name)
        state.bind(each.asname or package, state.package(package, path if each.asname else ""))
    return NOTHING


def _import_from(state: AbstractState, node: ast.ImportFrom) -> Value:
    package, _, path = (node.module or ".").partition(".")
    _run_module(state, node.module or "")
    names = {each.asname or each.name: each.name for each in node.names if each.name != "*"}
    for own, name in (names or {name: name for name in star_names([node])}).items():
        other = module_imported_by(node.module or ".", name)
        state.bind(own, state.package(*other) if other else state.package(package, f"{path}.{name}".lstrip(".")))
    return NOTHING


def _run_module(state: AbstractState, name: str) -> None:
    """Record how importing a project module uses random states; only the first import runs the module."""
    package, *path = name.split(".")
    if name not in state.imported and (use := random_use(package, path)) is not None:
        use_random(state, use)
    state.imported.add(name)


def _assign(state: AbstractState, node: ast.Assign) -> Value:
    only = all(isinstance(each, ast.Name) and each.id == "_" for each in node.targets)
    value = call(state, node.value, dropped=True) if only else state.visit(node.value)
    for target in node.targets:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple | ast.List):
            _unpack(state, target, node.value)
        else:
            store(state, target, value)
    return NOTHING


def _unpack(state: AbstractState, target: ast.Tuple | ast.List, value: ast.Tuple | ast.List) -> None:
    """Assign the elements of `a, b = b, a` one by one, after all of the right side is evaluated."""
    starred = any(isinstance(each, ast.Starred) for each in [*target.elts, *value.elts])
    if starred or len(target.elts) != len(value.elts):
        store(state, target, state.visit(value))
        return
    values = [state.visit(each) for each in value.elts]
    for each, found in zip(target.elts, values, strict=True):
        store(state, each, found)


def _annotated(state: AbstractState, node: ast.AnnAssign) -> Value:
    if node.value is not None:
        store(state, node.target, state.visit(node.value))
    return NOTHING


def _augmented(state: AbstractState, node: ast.AugAssign) -> Value:
    value = state.visit(node.value)
    target = node.target
    if isinstance(target, ast.Name):
        before = state.lookup(target.id)
        change(state, before)
        call_methods(state, before, ("__iadd__", "__imul__", "__ior__", "__isub__", "__iand__"), [value], node)
        for each in before:
            each.hold(parts_of(value) | value)
        state.bind(target.id, before | (state.holding(node, value) if value else NOTHING))
        return NOTHING
    before = state.visit(loaded(target))
    change(state, before)
    store(state, target, before | value)
    return NOTHING


def _delete(state: AbstractState, node: ast.Delete) -> Value:
    for target in node.targets:
        if isinstance(target, ast.Name):
            if state.frame is None:
                rebind(state, target.id, NOTHING, node)
        else:
            store(state, target, NOTHING)
    return NOTHING


def _expression(state: AbstractState, node: ast.Expr) -> Value:
    return call(state, node.value, dropped=node.value is not state.shown)


def _return(state: AbstractState, node: ast.Return) -> Value:
    if node.value is not None and state.frame is not None:
        state.frame.results |= state.visit(node.value)
    return NOTHING


def _assert(state: AbstractState, node: ast.Assert) -> Value:
    branch_on(state, node.test)
    return NOTHING


def _nothing(state: AbstractState, node: ast.stmt) -> Value:
    return NOTHING


VISITS: Visits = {
    **dict.fromkeys((ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal), _nothing),
    **dict.fromkeys((ast.If, ast.Try, ast.TryStar), _branch),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While), _loop),
    **dict.fromkeys((ast.With, ast.AsyncWith), _with),
    ast.ExceptHandler: _handler,
    ast.Match: _match,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.Expr: _expression,
    ast.Return: _return,
    ast.Assert: _assert,
}
