"""Apply the effects of each kind of statement."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow.abstract_objects import NOTHING, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState, Visits
from jupyter_ext.capture.follow.calls import call
from jupyter_ext.capture.follow.iteration import iterate
from jupyter_ext.capture.follow.mutations import change, use_random
from jupyter_ext.capture.follow.objects import ask_truth, call_methods
from jupyter_ext.capture.follow.sources import module_imported_by, random_use
from jupyter_ext.capture.follow.syntax import loaded
from jupyter_ext.capture.follow.targets import rebind, store
from jupyter_ext.capture.loaded import star_names


def _branch(world: AbstractState, node: ast.If | ast.Try | ast.TryStar) -> Value:
    world.branches += 1
    if isinstance(node, ast.If):
        ask_truth(world, node.test)
        world.visit_all([*node.body, *node.orelse])
    else:
        world.visit_parts(node)
    world.branches -= 1
    return NOTHING


def _loop(world: AbstractState, node: ast.For | ast.AsyncFor | ast.While) -> Value:
    world.branches += 1
    for _ in range(2):
        if isinstance(node, ast.While):
            ask_truth(world, node.test)
        else:
            store(world, node.target, iterate(world, world.visit(node.iter)))
        world.visit_all(node.body)
    world.visit_all(node.orelse)
    world.branches -= 1
    return NOTHING


def _with(world: AbstractState, node: ast.With | ast.AsyncWith) -> Value:
    for item in node.items:
        manager = world.visit(item.context_expr)
        given = call_methods(world, manager, ("__enter__", "__aenter__"), [], item)
        call_methods(world, manager, ("__exit__", "__aexit__"), [], item)
        given |= iterate(world, manager)  # @contextmanager
        if item.optional_vars is not None:
            store(world, item.optional_vars, frozenset(given | manager))
    world.visit_all(node.body)
    return NOTHING


def _handler(world: AbstractState, node: ast.ExceptHandler) -> Value:
    if node.type:
        world.visit(node.type)
    if node.name:
        world.bind(node.name, NOTHING)
    world.visit_all(node.body)
    return NOTHING


def _bind_pattern(world: AbstractState, pattern: ast.pattern, value: Value) -> None:
    for each in ast.walk(pattern):
        name = getattr(each, "rest" if isinstance(each, ast.MatchMapping) else "name", None)
        if isinstance(name, str):
            world.bind(name, value)


def _match(world: AbstractState, node: ast.Match) -> Value:
    subject = world.visit(node.subject)
    world.branches += 1
    for case in node.cases:
        _bind_pattern(world, case.pattern, subject | parts_of(subject))
        if case.guard:
            ask_truth(world, case.guard)
        world.visit_all(case.body)
    world.branches -= 1
    return NOTHING


def _import(world: AbstractState, node: ast.Import) -> Value:
    for each in node.names:
        package, _, path = each.name.partition(".")
        _run_module(world, each.name)
        world.bind(each.asname or package, world.package(package, path if each.asname else ""))
    return NOTHING


def _import_from(world: AbstractState, node: ast.ImportFrom) -> Value:
    package, _, path = (node.module or ".").partition(".")
    _run_module(world, node.module or "")
    names = {each.asname or each.name: each.name for each in node.names if each.name != "*"}
    for own, name in (names or {name: name for name in star_names([node])}).items():
        other = module_imported_by(node.module or ".", name)
        world.bind(own, world.package(*other) if other else world.package(package, f"{path}.{name}".lstrip(".")))
    return NOTHING


def _run_module(world: AbstractState, name: str) -> None:
    """Record the random states that importing a project module uses; only its first import runs the module."""
    package, *path = name.split(".")
    if name not in world.imported and (use := random_use(package, path)) is not None:
        use_random(world, use)
    world.imported.add(name)


def _assign(world: AbstractState, node: ast.Assign) -> Value:
    only = all(isinstance(each, ast.Name) and each.id == "_" for each in node.targets)
    value = call(world, node.value, dropped=True) if only else world.visit(node.value)
    for target in node.targets:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple | ast.List):
            _unpack(world, target, node.value)
        else:
            store(world, target, value)
    return NOTHING


def _unpack(world: AbstractState, target: ast.Tuple | ast.List, value: ast.Tuple | ast.List) -> None:
    """Assign `a, b = b, a` element by element, with the right side evaluated first."""
    starred = any(isinstance(each, ast.Starred) for each in [*target.elts, *value.elts])
    if starred or len(target.elts) != len(value.elts):
        store(world, target, world.visit(value))
        return
    values = [world.visit(each) for each in value.elts]
    for each, found in zip(target.elts, values, strict=True):
        store(world, each, found)


def _annotated(world: AbstractState, node: ast.AnnAssign) -> Value:
    if node.value is not None:
        store(world, node.target, world.visit(node.value))
    return NOTHING


def _augmented(world: AbstractState, node: ast.AugAssign) -> Value:
    value = world.visit(node.value)
    target = node.target
    if isinstance(target, ast.Name):
        before = world.lookup(target.id)
        change(world, before)
        call_methods(world, before, ("__iadd__", "__imul__", "__ior__", "__isub__", "__iand__"), [value], node)
        for each in before:
            each.hold(parts_of(value) | value)
        world.bind(target.id, before | (world.holding(node, value) if value else NOTHING))
        return NOTHING
    before = world.visit(loaded(target))
    change(world, before)
    store(world, target, before | value)
    return NOTHING


def _delete(world: AbstractState, node: ast.Delete) -> Value:
    for target in node.targets:
        if isinstance(target, ast.Name):
            if world.frame is None:
                rebind(world, target.id, NOTHING, node)
        else:
            store(world, target, NOTHING)
    return NOTHING


def _expression(world: AbstractState, node: ast.Expr) -> Value:
    return call(world, node.value, dropped=node.value is not world.kept)


def _return(world: AbstractState, node: ast.Return) -> Value:
    if node.value is not None and world.frame is not None:
        world.frame.results |= world.visit(node.value)
    return NOTHING


def _assert(world: AbstractState, node: ast.Assert) -> Value:
    ask_truth(world, node.test)
    return NOTHING


def _nothing(world: AbstractState, node: ast.stmt) -> Value:
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
