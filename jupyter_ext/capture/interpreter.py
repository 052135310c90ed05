"""Runs statements on things instead of values: which names may a statement change, and which globals does it read?

Functions and classes of the notebook are entered when they are called, so that what they change, return and keep is
known; of other code `libraries` says what is assumed. All branches are taken and loops run twice; what a name may be
is replaced by a plain assignment and added to within a branch.
"""

# ruff: noqa: N802 - visitors are named after the nodes
from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jupyter_ext.capture import libraries
from jupyter_ext.capture.facts import FunctionNode, Statement
from jupyter_ext.capture.names import bound, parameters, root
from jupyter_ext.capture.things import ELEMENTS, NOTHING, Frame, Function, Thing, Value, names_of, reach

_STEPS = 20_000  # nodes within functions that are followed; beyond them their text is all that is looked at
_STEPS_OF_ONE = 4_000  # for one statement
_DEPTH = 40  # of calls within calls


@dataclass
class Outcome:
    """What running one statement may do to the notebook's names."""

    changed: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)  # by functions that it called
    bound: set[str] = field(default_factory=set)  # `global` in these, and through `globals()`
    seeded: set[str] = field(default_factory=set)
    drawn: set[str] = field(default_factory=set)
    unseen: bool = False  # runs a text that is made when it runs
    ambient: bool = False  # changes what any statement may depend on, such as sys.path


class Interpreter:
    """The notebook's names and what they may stand for, statement after statement."""

    def __init__(self) -> None:
        self.globals: dict[str, Value] = {}
        self._packages: dict[str, Thing] = {}
        self._trees: list[ast.AST] = []
        self._visits: dict[type[ast.AST], Callable[[Any], Value]] = {}
        self.counts_subclasses = False  # somebody asks for `__subclasses__`
        self._sets_secret = False
        self._left = _STEPS
        self._begin()

    def _begin(self) -> None:
        self.out = Outcome()
        self._changed: set[Thing] = set()
        self._frame: Frame | None = None
        self._branches = 0
        self._made: dict[object, Thing] = {}
        self._memo: dict[object, Value] = {}
        self._stack = 0
        self._steps = 0
        self._kept: ast.AST | None = None  # a call whose value is shown: it may have been made for that alone

    def run(self, statement: Statement, *, displayed: bool, secret: bool = False) -> Outcome:
        """What a statement may do; `displayed`: its value was shown, `secret`: what it sets in the environment is."""
        self._begin()
        self._branches = int(statement.failed)  # which may have bound its names or not
        self._sets_secret = secret
        if displayed and isinstance(statement.nodes[-1], ast.Expr):
            self._kept = statement.nodes[-1].value
        for node in statement.nodes:
            self._run(node)
        self._left -= self._steps
        self.out.changed |= names_of(self._changed)
        return self.out

    # What names are

    def lookup(self, name: str) -> Value:
        """What a name may be here."""
        frame = self._frame
        innermost = True
        while frame is not None:
            visible = name in frame.values if frame.is_class else name in frame.local
            if visible and (innermost or not frame.is_class):
                return frame.values.get(name, NOTHING)
            innermost = False
            frame = frame.outer
        if self._frame is not None:
            self.out.read.add(name)
        return self.globals.get(name, NOTHING)

    def _owner(self, name: str) -> Frame | None:
        frame = self._frame
        if frame is not None and name in frame.local:
            return frame
        while frame is not None and frame.outer is not None:
            frame = frame.outer
            if name in frame.local and not frame.is_class:
                return frame
        return None

    def _bind(self, name: str, value: Value) -> None:
        frame = self._frame
        if frame is None:
            self._bind_global(name, value)
            return
        if name in frame.local:
            owner: Frame | None = frame
        else:  # global or nonlocal
            owner = self._owner(name)
        if owner is None:
            self._bind_weakly(name, value)
            return
        if owner is not frame:
            self._changed.add(owner.box)
        owner.values[name] = owner.values.get(name, NOTHING) | value
        owner.box.hold(value)

    def _bind_global(self, name: str, value: Value) -> None:
        before = self.globals.get(name, NOTHING)
        if self._branches and self._frame is None:
            value |= before
        for each in before - value:
            each.names.discard(name)
        for each in value - before:
            each.names.add(name)
        self.globals[name] = value

    def _make(self, node: object, **more: Any) -> Thing:
        """The thing that this place in the code makes, in this statement."""
        key = (id(node), *more)
        if key not in self._made:
            self._made[key] = Thing(**more)
        return self._made[key]

    def _holding(self, node: object, value: Iterable[Thing], **more: Any) -> Value:
        thing = self._make(node, **more)
        thing.hold(value)
        return frozenset([thing])

    def _package(self, package: str, path: str = "") -> Value:
        key = f"{package}:{path}"
        if key not in self._packages:
            thing = self._packages[key] = Thing(package=package, path=path, opaque=True)
            if path:
                (top,) = self._package(package)
                top.holders.add(thing)
        return frozenset([self._packages[key]])

    # Changes

    def _change(self, value: Iterable[Thing], *, deep: bool = False) -> None:
        found = reach(value) if deep else value
        for each in found:
            if each.package is None:
                self._changed.add(each)
                if deep:
                    each.opaque = True

    def _use(self, value: Iterable[Thing]) -> None:
        """Iterators move on, generators draw."""
        for each in value:
            if each.stateful:
                self._changed.add(each)

    def _change_package(self, package: str, path: tuple[str, ...]) -> None:
        if self._sets_secret:
            return
        if path and (package, path[0]) in libraries.AMBIENT:
            self.out.ambient = True
        self._changed |= self._package(package)

    # Statements

    def _run(self, node: ast.AST) -> Value:
        kind = type(node)
        if kind not in self._visits:
            self._visits[kind] = getattr(self, f"_{kind.__name__}", self._other)
        if self._stack:
            self._steps += 1
        return self._visits[kind](node)

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self._run(node)

    def _other(self, node: ast.AST) -> Value:
        """An expression whose parts go into what it makes: `a + b`, `[a, b]`, `a < b`."""
        inside: set[Thing] = set()
        for each in ast.iter_child_nodes(node):
            inside |= self._run(each)
        return self._holding(node, inside) if inside and isinstance(node, ast.expr) else NOTHING

    def _Constant(self, node: ast.Constant) -> Value:
        return NOTHING

    _Pass = _Break = _Continue = _Constant

    def _Global(self, node: ast.Global | ast.Nonlocal) -> Value:
        return NOTHING

    _Nonlocal = _Global

    def _branch(self, node: ast.AST) -> Value:
        self._branches += 1
        self._other(node)
        self._branches -= 1
        return NOTHING

    _If = _Try = _TryStar = _branch

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> Value:
        self._branches += 1
        for _ in range(2):
            if isinstance(node, ast.While):
                self._run(node.test)
            else:
                self._store(node.target, self._iterate(self._run(node.iter)))
            self._all(node.body)
        self._all(node.orelse)
        self._branches -= 1
        return NOTHING

    _For = _AsyncFor = _While = _loop

    def _With(self, node: ast.With | ast.AsyncWith) -> Value:
        for item in node.items:
            manager = self._run(item.context_expr)
            given = self._method(manager, ("__enter__", "__aenter__"), [], item)
            self._method(manager, ("__exit__", "__aexit__"), [], item)
            given |= self._iterate(manager)  # @contextmanager
            if item.optional_vars is not None:
                self._store(item.optional_vars, frozenset(given | manager))
        self._all(node.body)
        return NOTHING

    _AsyncWith = _With

    def _ExceptHandler(self, node: ast.ExceptHandler) -> Value:
        if node.type:
            self._run(node.type)
        if node.name:
            self._bind(node.name, NOTHING)
        self._all(node.body)
        return NOTHING

    def _match(self, node: Any) -> Value:
        for each in ast.walk(node):
            name = getattr(each, "rest" if isinstance(each, ast.MatchMapping) else "name", None)
            if isinstance(name, str):
                self._bind(name, self._subject)
        return NOTHING

    _MatchAs = _MatchStar = _MatchMapping = _MatchSequence = _MatchClass = _MatchOr = _MatchValue = _match
    _subject: Value = NOTHING

    def _Match(self, node: ast.Match) -> Value:
        subject = self._run(node.subject)
        self._branches += 1
        self._subject = subject | self._parts(subject)
        for case in node.cases:
            self._run(case.pattern)
            if case.guard:
                self._run(case.guard)
            self._all(case.body)
        self._branches -= 1
        return NOTHING

    def _Import(self, node: ast.Import) -> Value:
        for each in node.names:
            package, _, path = each.name.partition(".")
            self._bind(each.asname or package, self._package(package, path if each.asname else ""))
        return NOTHING

    def _ImportFrom(self, node: ast.ImportFrom) -> Value:
        package, _, path = (node.module or ".").partition(".")
        for each in node.names:
            if each.name != "*":
                self._bind(each.asname or each.name, self._package(package, f"{path}.{each.name}".lstrip(".")))
        return NOTHING

    def _Assign(self, node: ast.Assign) -> Value:
        only = all(isinstance(each, ast.Name) and each.id == "_" for each in node.targets)
        value = self._call(node.value, dropped=True) if only else self._run(node.value)
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple | ast.List):
                self._unpack(target, node.value)
            else:
                self._store(target, value)
        return NOTHING

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.Tuple | ast.List) -> None:
        """`a, b = b, a`: each its own, and the right side as it was before."""
        starred = any(isinstance(each, ast.Starred) for each in [*target.elts, *value.elts])
        if starred or len(target.elts) != len(value.elts):
            self._store(target, self._run(value))
            return
        values = [self._run(each) for each in value.elts]
        for each, found in zip(target.elts, values, strict=True):
            self._store(each, found)

    def _AnnAssign(self, node: ast.AnnAssign) -> Value:
        if node.value is not None:
            self._store(node.target, self._run(node.value))
        return NOTHING

    def _AugAssign(self, node: ast.AugAssign) -> Value:
        value = self._run(node.value)
        target = node.target
        if isinstance(target, ast.Name):
            before = self.lookup(target.id)
            self._change(before)
            self._method(before, ("__iadd__", "__imul__", "__ior__", "__isub__", "__iand__"), [value], node)
            for each in before:
                each.hold(self._parts(value) | value)
            self._bind(target.id, before | (self._holding(node, value) if value else NOTHING))
            return NOTHING
        before = self._run(ast.copy_location(_loaded(target), target))
        self._change(before)
        self._store(target, before | value)
        return NOTHING

    def _NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self._run(node.value)
        self._store(node.target, value)
        return value

    def _Delete(self, node: ast.Delete) -> Value:
        for target in node.targets:
            if isinstance(target, ast.Name):
                if self._frame is None:
                    self._bind_global(target.id, NOTHING)
            else:
                self._store(target, NOTHING)
        return NOTHING

    def _Expr(self, node: ast.Expr) -> Value:
        return self._call(node.value, dropped=node.value is not self._kept)

    def _Return(self, node: ast.Return | ast.Yield) -> Value:
        if node.value is not None and self._frame is not None:
            self._frame.results |= self._run(node.value)
        return NOTHING

    _Yield = _Return

    def _YieldFrom(self, node: ast.YieldFrom) -> Value:
        if self._frame is not None:
            self._frame.results |= self._iterate(self._run(node.value))
        return NOTHING

    # Places

    def _store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = self._iterate(value)
            for each in target.elts:
                self._store(each, parts)
        elif isinstance(target, ast.Starred):
            self._store(target.value, self._holding(target, value))
        elif isinstance(target, ast.Attribute | ast.Subscript):
            self._store_part(target, value)

    def _store_part(self, target: ast.Attribute | ast.Subscript, value: Value) -> None:
        holder = self._run(target.value)
        under = target.attr if isinstance(target, ast.Attribute) else ELEMENTS
        if isinstance(target, ast.Subscript):
            self._run(target.slice)
            self._method(holder, ("__setitem__", "__delitem__"), [NOTHING, value], target)
            self._store_by_name(target, value)
        else:
            self._method(holder, ("__setattr__",), [NOTHING, value], target)
            for each in holder:
                for found in each.find(under):
                    self._method(frozenset([found]), ("__set__",), [holder, value], target)
                    if found.function and found.function.decorators - {"staticmethod", "classmethod"}:
                        self._invoke(found, [holder, value], {}, target)
        self._change(holder)
        for each in holder:
            each.hold(value, under)
        name, path = root(target)
        if name is not None and self._owner(name) is None:
            self._change_root(name, path)

    def _change_root(self, name: str, path: tuple[str, ...]) -> None:
        """`decimal.getcontext().prec = 5`, and names whose value is known to nobody."""
        packages = [each for each in self.globals.get(name, NOTHING) if each.package]
        for each in packages:
            self._change_package(each.package or "", (*filter(None, each.path.split(".")), *path))
        if not packages and not self.globals.get(name):
            self.out.changed.add(name)

    def _store_by_name(self, target: ast.Subscript, value: Value) -> None:
        """`globals()["x"] = 1`."""
        key = target.slice
        if _is_globals(target.value) and isinstance(key, ast.Constant) and isinstance(key.value, str):
            self._bind_weakly(key.value, value)

    def _bind_globals(self, node: ast.Call) -> None:
        """`globals().update(x=1)`."""
        pairs = [(each.arg, each.value) for each in node.keywords]
        for literal in node.args:
            if isinstance(literal, ast.Dict):
                keys = [getattr(each, "value", None) for each in literal.keys]
                pairs += zip(keys, literal.values, strict=True)
        for name, value in pairs:
            if isinstance(name, str):
                self._bind_weakly(name, self._run(value))

    def _bind_weakly(self, name: str, value: Value) -> None:
        self.out.bound.add(name)
        self._bind_global(name, self.globals.get(name, NOTHING) | value)

    def _parts(self, value: Iterable[Thing]) -> Value:
        """What an element or an attribute of it may be."""
        found: set[Thing] = set()
        for each in value:
            found |= each.parts()
            if each.opaque or each.package:
                found.add(each)
        return frozenset(found)

    # Expressions

    def _Name(self, node: ast.Name) -> Value:
        return self.lookup(node.id) if isinstance(node.ctx, ast.Load) else NOTHING

    def _Attribute(self, node: ast.Attribute) -> Value:
        return self._attribute(self._run(node.value), node.attr, node)

    def _attribute(self, holder: Value, name: str, node: ast.AST) -> Value:
        found: set[Thing] = set()
        for each in holder:
            known = each.find(name)
            for part in known:
                if part.function is None:
                    found.add(part)
                    found |= self._method(frozenset([part]), ("__get__",), [holder], node)
                elif each.is_class:
                    of_class = "classmethod" in part.function.decorators
                    found.add(self._method_of(part, each, node) if of_class else part)
                elif part.function.decorators & {"property", "cached_property"}:
                    found |= self._invoke(part, [frozenset([each])], {}, node)
                elif part in each.fields.get(name, ()) or "staticmethod" in part.function.decorators:
                    found.add(part)
                else:
                    found.add(self._method_of(part, each, node))
            if known and not each.names_field(name):
                found.add(each)  # it may be anything that was stored without a name, and what is not seen
            if name in libraries.STORING and not each.names_field(name) and each.package is None:
                found.add(self._method_of(each, each, (name, id(node))))
            elif each.opaque or each.package:
                found.add(each)
                found |= each.parts()
            elif name in ("__dict__", "__class__", "__wrapped__"):
                found.add(each)
            elif not known and each.classes:
                found |= self._method(frozenset([each]), ("__getattr__", "__getattribute__"), [NOTHING], node)
                found |= each.parts()
        return frozenset(found)

    def _method_of(self, method: Thing, holder: Thing, node: object) -> Thing:
        key = ("bound", id(method), id(holder), node if isinstance(node, tuple) else id(node))
        if key not in self._made:
            thing = self._made[key] = Thing(function=method.function, bound=frozenset([holder]))
            thing.path = str(node[0]) if isinstance(node, tuple) and method.function is None else ""
            thing.holders.add(holder)
            holder.holders.add(thing)
        return self._made[key]

    def _Subscript(self, node: ast.Subscript) -> Value:
        holder = self._run(node.value)
        self._run(node.slice)
        self._change([each for each in holder if each.grows])
        found = self._method(holder, ("__getitem__", "__class_getitem__", "__missing__"), [NOTHING], node)
        parts = holder if isinstance(node.slice, ast.Slice) else NOTHING  # of an array it is a view
        return frozenset(found | self._parts(holder) | parts)

    def _Starred(self, node: ast.Starred) -> Value:
        return self._iterate(self._run(node.value))

    def _Dict(self, node: ast.Dict) -> Value:
        inside: set[Thing] = set()
        for key, value in zip(node.keys, node.values, strict=True):
            found = self._run(value)
            inside |= found if key is not None else self._parts(found)
            if key is not None:
                inside |= self._run(key)
        return self._holding(node, inside)

    def _display(self, node: ast.List | ast.Set | ast.Tuple) -> Value:
        inside: set[Thing] = set()
        for each in node.elts:
            inside |= self._run(each)
        return self._holding(node, inside) if inside or not isinstance(node, ast.Tuple) else NOTHING

    _List = _Set = _Tuple = _display

    def _JoinedStr(self, node: ast.AST) -> Value:
        self._other(node)
        return NOTHING

    def _Compare(self, node: ast.Compare) -> Value:
        self._use(self._run(node.comparators[0]))  # `x in iterator`
        return self._other(node)

    def _IfExp(self, node: ast.IfExp) -> Value:
        self._run(node.test)
        return self._run(node.body) | self._run(node.orelse)

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        return NOTHING.union(*[self._run(each) for each in node.values])

    def _Await(self, node: ast.Await) -> Value:
        return self._run(node.value)

    def _BinOp(self, node: ast.BinOp) -> Value:
        left, right = self._run(node.left), self._run(node.right)
        if not left and not right:
            return NOTHING
        names = _OPERATORS.get(type(node.op), ())
        found = self._method(left, names, [right], node) | self._method(right, names, [left], node)
        return frozenset(found | self._holding(node, self._parts(left) | self._parts(right), opaque=True))

    def _iterate(self, value: Value) -> Value:
        """Take all of it; what its elements may be."""
        self._use(value)
        found = set(self._parts(value))
        for each in value:
            if each.call is not None:
                results = self._enter(*each.call)
                found |= results if each.call[0].function.is_generator else self._parts(results)  # type: ignore[union-attr]
                each.hold(found)
            elif each.stateful:  # `map(f, xs)`
                for part in reach([each]) - {each}:
                    self._use([part])
                    if part.function is not None:
                        found |= self._apply(part, [self._parts([each])], {}, ast.Pass())
                    if part.path and part.bound:
                        self._contain(part.path, part.bound, [self._parts([each])])
        found |= self._iterate_own(value)
        return frozenset(found)

    def _iterate_own(self, value: Value) -> set[Thing]:
        found = self._method(value, ("__iter__", "__aiter__"), [], ast.Pass())
        return found | self._method(value | found, ("__next__", "__anext__", "__getitem__"), [NOTHING], ast.Pass())

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        local = {each.id for gen in node.generators for each in ast.walk(gen.target) if isinstance(each, ast.Name)}
        before = self._frame
        inner = Frame(local, before)
        if isinstance(node, ast.GeneratorExp):
            return self._lazy(node)
        inside: set[Thing] = set()
        for generator in node.generators:
            found = self._iterate(self._run(generator.iter))
            self._frame = inner
            self._store(generator.target, found)
            self._all(generator.ifs)
        self._frame = inner
        for each in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            inside |= self._run(each)
        self._frame = before
        return self._holding(node, inside)

    def _lazy(self, node: ast.GeneratorExp) -> Value:
        """A generator expression: its parts run when it is iterated."""
        iterator = self._make(node, stateful=True)
        iterator.hold(self._run(node.generators[0].iter))
        iterator.call = (self._function(_deferred(node)), [], {})
        return frozenset([iterator])

    _ListComp = _SetComp = _GeneratorExp = _DictComp = _comprehension

    # Functions and classes

    def _FunctionDef(self, node: FunctionNode) -> Value:
        self._bind(node.name, self._decorated(node, self._function(node)))
        return NOTHING

    _AsyncFunctionDef = _FunctionDef

    def _Lambda(self, node: ast.Lambda) -> Value:
        return frozenset([self._function(node)])

    def _function(self, node: FunctionNode | ast.Lambda) -> Thing:
        key = ("function", id(node), id(self._frame))
        if key not in self._made:
            decorators = frozenset(_last(each) for each in getattr(node, "decorator_list", []))
            thing = self._made[key] = Thing(function=Function(node, self._frame, *_body(node), decorators))
            frame = self._frame
            while frame is not None:
                thing.hold([frame.box], "closure")
                frame = frame.outer
        thing = self._made[key]
        arguments = node.args
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            thing.hold(self._run(default), "default")
        return thing

    def _decorated(self, node: FunctionNode | ast.ClassDef, thing: Thing) -> Value:
        value: Value = frozenset([thing])
        for decorator in reversed(node.decorator_list):
            called = self._run(decorator)
            _, path = root(decorator)
            inner = decorator.func if isinstance(decorator, ast.Call) else decorator
            receiver = self._run(inner.value) if isinstance(inner, ast.Attribute) else NOTHING
            unseen = bool(called & receiver) or not called
            called -= receiver
            known = [each for each in called if each.function or each.is_class or each.classes]
            if known:
                value |= frozenset().union(*[self._apply(each, [value], {}, decorator) for each in known])
            if unseen and not any(each.package for each in called | receiver):
                self._change(receiver)
                for each in receiver:
                    each.hold(value)
            packages = [each.package for each in called | receiver if each.package]
            if packages:
                if path and libraries.sets(path):
                    self._change_package(packages[0], path)
                thing.opaque = True
        return value

    def _ClassDef(self, node: ast.ClassDef) -> Value:
        thing = self._make(node, is_class=True)
        for base in node.bases:
            found = self._run(base)
            thing.classes += [each for each in found if each.is_class and each not in thing.classes]
            if any(not each.is_class for each in found):
                thing.opaque = True
            for each in found:
                if each.is_class:
                    each.holders.add(thing)
        meta: Value = NOTHING
        keywords: dict[str | None, Value] = {}
        for keyword in node.keywords:
            keywords[keyword.arg] = self._run(keyword.value)
            if keyword.arg == "metaclass":
                meta = keywords[keyword.arg]
        frame = Frame(bound(node.body), self._frame, is_class=True)
        outer, self._frame = self._frame, frame
        self._all(node.body)
        self._frame = outer
        for name, value in frame.values.items():
            thing.hold(value, name)
            self._method(value, ("__set_name__",), [frozenset([thing]), NOTHING], node)
        itself: Value = frozenset([thing])
        for each in list(thing.classes):
            meta |= frozenset(each.find("metaclass"))
        thing.hold(meta, "metaclass")
        if self.counts_subclasses:
            self._changed.update(thing.classes)
        for each in meta:
            thing.classes += [each] if each.is_class and each not in thing.classes else []
            for name in ("__new__", "__init__", "__prepare__"):
                for method in each.find(name):
                    self._invoke(method, [itself, NOTHING, itself, itself], {}, node)
        for each in thing.classes:
            for method in each.find("__init_subclass__"):
                self._invoke(method, [itself], {key: v for key, v in keywords.items() if key}, node)
        self._bind(node.name, self._decorated(node, thing))
        return NOTHING

    def _method(self, value: Value, names: Iterable[str], arguments: list[Value], node: ast.AST) -> set[Thing]:
        """Call these methods of the instances among `value` whose classes have them."""
        found: set[Thing] = set()
        for each in value:
            if each.classes and not each.is_class:
                for name in names:
                    for cls in each.classes:
                        for method in cls.find(name):
                            if method.function is not None and name in _fields(cls):
                                found |= self._invoke(method, [frozenset([each]), *arguments], {}, node)
        return found

    # Calls

    def _Call(self, node: ast.Call) -> Value:
        return self._call(node, dropped=False)

    def _call(self, node: ast.expr, *, dropped: bool) -> Value:
        if isinstance(node, ast.Await):
            node = node.value
        if not isinstance(node, ast.Call):
            return self._run(node)
        func = node.func
        receiver = self._run(func.value) if isinstance(func, ast.Attribute) else NOTHING
        if isinstance(func, ast.Attribute):
            callee = self._attribute(receiver, func.attr, func)
            if _is_super(func.value):
                callee |= self._of_bases(receiver, func.attr, func)
        else:
            callee = self._run(func)
        if isinstance(func, ast.Attribute) and func.attr == "update" and _is_globals(func.value):
            self._bind_globals(node)
        arguments: list[Value] = []
        for argument in node.args:  # what is spread may go anywhere
            arguments += [self._run(argument)] * (_SPREAD if isinstance(argument, ast.Starred) else 1)
        keywords = {each.arg: self._run(each.value) for each in node.keywords}
        found: set[Thing] = set()
        if dropped and isinstance(func, ast.Attribute) and func.attr in libraries.CHANGING:
            self._change(receiver)
        unknown = not callee
        for each in callee:
            if each in receiver:  # a method that we do not see
                unknown = True
            elif each.path and each.bound:  # `xs.append` under another name
                self._contain(each.path, each.bound, arguments)
            elif each.package is None and (each.function or each.is_class or self._callable(each)):
                found |= self._apply(each, arguments, {k or "**": v for k, v in keywords.items()}, node)
            else:
                unknown = True
        if isinstance(func, ast.Name) and self._owner(func.id) is None:
            found |= self._builtin(func.id, arguments, node)
        if unknown:
            found |= self._library(node, receiver, callee, arguments, keywords, dropped=dropped)
        return frozenset(found)

    def _callable(self, thing: Thing) -> bool:
        return any("__call__" in _fields(each) for each in thing.classes)

    def _builtin(self, name: str, arguments: list[Value], node: ast.Call) -> set[Thing]:
        if name in ("setattr", "delattr") and arguments:
            key = node.args[1] if len(node.args) > 1 else None
            under = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ELEMENTS
            self._change(arguments[0])
            for each in arguments[0]:
                each.hold(arguments[-1] if name == "setattr" else NOTHING, under)
            first, path = root(node.args[0])
            if first is not None and self._owner(first) is None:
                self._change_root(first, path)
        elif name == "getattr" and len(node.args) > 1:
            key = node.args[1]
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                return set(self._attribute(arguments[0], key.value, node))
            return set(self._parts(arguments[0]))
        elif name in ("exec", "eval") and node.args:
            text = node.args[0]
            if isinstance(text, ast.Constant) and len(node.args) == 1:
                return set(self._text(str(text.value)))
            self.out.unseen = True
        elif name == "type" and len(node.args) == 3:
            made = self._make(node, is_class=True, opaque=True)
            made.classes += [each for each in self._parts(arguments[1]) if each.is_class]
            made.hold(self._parts(arguments[2]))
            if isinstance(node.args[2], ast.Dict):
                for key, value in zip(node.args[2].keys, node.args[2].values, strict=True):
                    made.hold(self._run(value), str(getattr(key, "value", ELEMENTS)))
            return {made}
        elif name == "super":
            frame = self._frame
            while frame is not None and not frame.local & {"self", "cls"}:
                frame = frame.outer
            if frame is not None:
                return set(frame.values.get("self", NOTHING) | frame.values.get("cls", NOTHING))
        return set()

    def _of_bases(self, value: Value, name: str, node: ast.AST) -> Value:
        """All methods of that name in the classes of `value` and in their bases."""
        found: set[Thing] = set()
        for each in value:
            queue = [each] if each.is_class else list(each.classes)
            while queue:
                cls = queue.pop()
                queue += cls.classes
                methods = [method for method in cls.fields.get(name, ()) if method.function]
                found |= {self._method_of(method, each, (name, id(node))) for method in methods}
        return frozenset(found)

    def _text(self, text: str) -> Value:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return NOTHING
        self.out.bound |= bound(tree.body)
        self.out.read |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
        self._trees.append(tree)  # whose nodes are known by their ids
        self._branches += 1
        value = NOTHING
        for node in tree.body:
            value = self._run(node.value if isinstance(node, ast.Expr) else node)
        self._branches -= 1
        return value

    def _apply(self, thing: Thing, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        """Call something of the notebook: a function, a method, a class, an instance."""
        if thing.function is not None:
            return self._invoke(thing, [*([thing.bound] if thing.bound else []), *arguments], keywords, node)
        if thing.is_class:
            return self._instance(thing, arguments, keywords, node)
        found: set[Thing] = set()
        for cls in thing.classes:
            for method in cls.find("__call__"):
                found |= self._invoke(method, [frozenset([thing]), *arguments], keywords, node)
        return frozenset(found)

    def _instance(self, cls: Thing, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        key = ("instance", id(cls), id(node))
        if key not in self._made:
            self._made[key] = Thing(classes=[cls], opaque=_is_opaque(cls))
            cls.holders.add(self._made[key])
        thing = self._made[key]
        itself: Value = frozenset([thing])
        made = set(itself)
        methods = [*_own(cls, "__new__"), *_own(cls, "__init__"), *_own(cls, "__post_init__")]
        for method in _own(cls, "__new__"):
            made |= self._invoke(method, [frozenset([cls]), *arguments], keywords, node)
        for name in ("__init__", "__post_init__"):
            for method in _own(cls, name):
                self._invoke(method, [itself, *(arguments if name == "__init__" else [])], keywords, node)
        for meta in cls.classes:
            for method in _own(meta, "__call__"):
                made |= self._invoke(method, [frozenset([cls]), *arguments], keywords, node)
        if not methods or thing.opaque:
            thing.hold(NOTHING.union(*arguments))
            for name, value in keywords.items():
                thing.hold(value, name)
        if thing.opaque:
            self._draw("torch", ("Linear",))
        return frozenset(made)

    def _invoke(self, thing: Thing, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if thing.function is None:
            return NOTHING
        if not thing.function.is_generator:
            return self._enter(thing, arguments, keywords)
        iterator = self._make(("generator", id(thing), id(node)), stateful=True)
        iterator.call = (thing, arguments, keywords)
        iterator.hold(NOTHING.union(*arguments, *keywords.values()), "argument")
        iterator.hold([thing], "function")
        return frozenset([iterator])

    def _enter(self, thing: Thing, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """Run the body of a function, once for the same arguments in a statement."""
        function = thing.function
        assert function is not None
        key = (thing, tuple(arguments), frozenset(keywords.items()))
        if key in self._memo:
            return self._memo[key]
        self._memo[key] = NOTHING
        if self._stack >= _DEPTH or self._steps > min(self._left, _STEPS_OF_ONE):
            return self._glance(thing, arguments, keywords)
        frame = Frame(function.local, function.frame)
        for name, value in _bindings(function.node.args, arguments, keywords, thing):
            frame.values[name] = frame.values.get(name, NOTHING) | value
            frame.box.hold(value)
        outer, self._frame = self._frame, frame
        branches, self._branches = self._branches, 1
        self._stack += 1
        if isinstance(function.node, ast.Lambda):
            frame.results |= self._run(function.node.body)
        else:
            self._all(function.node.body)
        self._stack -= 1
        self._frame, self._branches = outer, branches
        self._memo[key] = frozenset(frame.results)
        return self._memo[key]

    def _glance(self, thing: Thing, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """Instead of running a function: whatever it can reach has changed, if it changes anything."""
        function = thing.function
        assert function is not None
        given = NOTHING.union(*arguments, *keywords.values())
        free, writes = _summary(function.node)
        self.out.read |= free
        if writes:
            self._change(given, deep=True)
        for name in free:
            for each in self.globals.get(name, ()):
                if each.function is not None and (each, "glance") not in self._memo:
                    self._memo[each, "glance"] = NOTHING
                    self._glance(each, [given], {})
                elif writes and each.function is None and not each.is_class:
                    self._change([each], deep=True)
        return self._holding(function.node, given, opaque=True)

    def _contain(self, name: str, receiver: Value, arguments: list[Value]) -> None:
        """A method of containers: `xs.append(x)`."""
        self._change(receiver)
        for value in arguments:
            for each in receiver:
                each.hold(value | self._parts(value) if name in _SPREADING else value)

    def _draw(self, package: str, path: tuple[str, ...]) -> None:
        state = libraries.random_state(package, path)
        if state is None:
            return
        if libraries.seeds(path[-1]):
            self.out.seeded.add(state)
        else:
            self.out.drawn.add(state)

    def _library(
        self,
        node: ast.Call,
        receiver: Value,
        callee: Value,
        arguments: list[Value],
        keywords: dict[str | None, Value],
        *,
        dropped: bool,
    ) -> Value:
        """A call of code that is not in the notebook."""
        root_name, path = root(node.func)
        name = path[-1] if path else root_name
        given = [*arguments, *keywords.values()]
        every = NOTHING.union(*given)
        packages = {each for each in callee | receiver if each.package}
        package = next(iter(packages)).package if packages else None
        for each in packages:
            inner = tuple(each.path.split(".")) if each.path else ()
            full = (*inner, *path) if isinstance(node.func, ast.Attribute) or not inner else inner
            name = full[-1] if full else name
            self._draw(each.package or "", full)
            if isinstance(node.func, ast.Attribute) and libraries.sets(path) and each in receiver:
                self._change_package(each.package or "", path)
            elif not isinstance(node.func, ast.Attribute) and libraries.sets(inner):
                self._change_package(each.package or "", inner)
        name = name or ""
        drawing = package in libraries.DRAWING
        self._use(every)
        for each in every | self._parts(every):
            if each.function is not None or each.is_class or self._callable(each):
                others = frozenset(every - {each})
                self._apply(each, [others | self._parts(others)] * 2, {}, node)
            elif each.path and each.bound:
                self._contain(each.path, each.bound, given)
        for each in every:
            if each.stateful:
                self._iterate(frozenset([each]))
        self._generic_dunders(every, node)
        self._called_back(receiver | callee, every, node, anything=dropped)
        if keywords.get("out"):
            self._change(keywords["out"])
        objects = frozenset(each for each in receiver if each.package is None)
        if (packages and not objects) or (isinstance(node.func, ast.Attribute) and _is_type(node.func.value, receiver)):
            return self._of_module(node, name, arguments, every, dropped=dropped and not drawing, path=path)
        if isinstance(node.func, ast.Attribute):
            return self._of_object(node, name, objects, arguments, every, dropped=dropped, path=path)
        return self._of_module(node, name, arguments, every | callee, dropped=dropped, path=path)

    def _called_back(self, value: Value, given: Value, node: ast.AST, *, anything: bool) -> None:
        """An object of a library is called, or a method of it: it may call what it was given, and its subclass."""
        known = frozenset(thing for thing in value if thing.opaque and thing.package is None)
        given |= self._parts(known) - known
        for each in reach(known):
            if each.function is not None:
                self._apply(each, [given, given], {}, node)
            elif each.path and each.bound:
                self._contain(each.path, each.bound, [given])
            elif each.classes and not each.is_class:
                names = set().union(*[_fields(cls) for cls in each.classes]) - _MAKING if anything else {"forward"}
                self._method(frozenset([each]), sorted(names), [given, given], node)

    def _generic_dunders(self, value: Value, node: ast.AST) -> None:
        for each in value:
            if each.classes and not each.is_class:
                self._method(
                    frozenset([each]),
                    ("__iter__", "__next__", "__len__", "__str__", "__repr__", "__float__", "__int__", "__bool__"),
                    [],
                    node,
                )

    def _of_module(
        self, node: ast.Call, name: str, arguments: list[Value], every: Value, *, dropped: bool, path: tuple[str, ...]
    ) -> Value:
        first = arguments[0] if arguments else NOTHING
        held = NOTHING.union(*arguments[1:]) if arguments else NOTHING
        unbound = isinstance(node.func, ast.Attribute) and name in libraries.STORING and len(arguments) > 0
        if name in libraries.CHANGING_FUNCTIONS or libraries.changes(name) or unbound:
            self._change(first, deep=name not in libraries.CHANGING_FUNCTIONS and not unbound)
            for each in first:
                each.hold(held)
            self._mark_unknown(node.args[:1])
        elif dropped and not libraries.only_looks(name, path):
            self._change(every, deep=True)
            self._mark_unknown([*node.args, *(each.value for each in node.keywords)])
        return self._result(node, name, every)

    def _of_object(
        self,
        node: ast.Call,
        name: str,
        objects: Value,
        arguments: list[Value],
        every: Value,
        *,
        dropped: bool,
        path: tuple[str, ...],
    ) -> Value:
        func = node.func
        assert isinstance(func, ast.Attribute)
        for each in objects:
            if each.stateful:
                self._iterate(frozenset([each]))
        inplace = any(each.arg == "inplace" for each in node.keywords)
        if name in libraries.STORING:
            self._contain(name, objects, arguments)
            self._mark_unknown([func.value])
        elif libraries.changes(name) or inplace:
            self._change(objects, deep=True)
            for each in objects:
                each.hold(every)
            self._mark_unknown([func.value])
            if name.endswith("_") or dropped:
                self._change(every, deep=True)
        elif not dropped and libraries.keeps(name):
            self._change(objects)
            for each in objects:
                each.hold(every)
            self._mark_unknown([func.value])
        elif dropped and not libraries.only_looks(name, path):
            self._change(objects | every, deep=True)
            self._mark_unknown([func.value, *node.args, *(each.value for each in node.keywords)])
            for each in objects:
                each.hold(every)
        for each in objects:
            if each.stateful:
                every |= objects
        if name in libraries.FRESH:
            return self._holding(node, NOTHING, opaque=True)
        if name in libraries.COPYING:
            return self._holding(node, self._parts(objects))
        if not node.args or name in libraries.SAME:
            found = frozenset(objects | self._parts(objects) | every)
            return found | self._holding(node, found, opaque=True)
        used = frozenset(each for each in objects if each.stateful)
        return used | self._holding(node, objects | every, opaque=True)

    def _mark_unknown(self, nodes: Iterable[ast.expr]) -> None:
        """Names that stand for nothing known may still be changed."""
        for each in nodes:
            name, _ = root(each)
            if name is not None and self._owner(name) is None and not self.globals.get(name):
                self.out.changed.add(name)

    def _result(self, node: ast.Call, name: str, every: Value) -> Value:
        if name in libraries.SCALAR and isinstance(node.func, ast.Name):
            return NOTHING
        if name in libraries.STATEFUL:
            return self._holding(node, every | self._parts(every), stateful=True)
        if name in libraries.FRESH:
            return self._holding(node, NOTHING, opaque=True)
        if name in libraries.COPYING:
            if name == "defaultdict":
                return self._holding(node, self._parts(every), grows=True)
            named = NOTHING.union(*[every & self._run(each.value) for each in node.keywords])
            return self._holding(
                node, self._parts(every) | named | {each for each in every if each.function or each.is_class}
            )
        if name in libraries.SAME:
            return every | self._parts(every)
        return self._holding(node, every, opaque=True)


_SPREAD = 8
_MAKING = {"__init__", "__new__", "__init_subclass__", ELEMENTS}
_SPREADING = {"extend", "extendleft", "update", "__iadd__"}
_OPERATORS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("__add__", "__radd__"),
    ast.Sub: ("__sub__", "__rsub__"),
    ast.Mult: ("__mul__", "__rmul__"),
    ast.Div: ("__truediv__", "__rtruediv__"),
    ast.BitOr: ("__or__", "__ror__"),
    ast.BitAnd: ("__and__", "__rand__"),
    ast.LShift: ("__lshift__", "__rlshift__"),
    ast.RShift: ("__rshift__", "__rrshift__"),
    ast.MatMult: ("__matmul__", "__rmatmul__"),
}


@lru_cache(maxsize=4096)
def _summary(node: FunctionNode | ast.Lambda) -> tuple[frozenset[str], bool]:
    """The names that a function reads, and whether it changes anything but its own names."""
    local, _ = _body(node)
    free: set[str] = set()
    writes = False
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id not in local:
            free.add(each.id)
        elif (isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load)) or isinstance(
            each, ast.Global | ast.Nonlocal | ast.AugAssign | ast.Expr
        ):
            writes = True
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            writes = writes or each.func.attr in libraries.STORING or libraries.changes(each.func.attr)
    return frozenset(free), writes


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_type(node: ast.expr, value: Value) -> bool:
    """`list` of `list.append(xs, 1)`."""
    return isinstance(node, ast.Name) and not value and isinstance(getattr(builtins, node.id, None), type)


@lru_cache(maxsize=4096)
def _deferred(node: ast.GeneratorExp) -> ast.Lambda:
    """The same as a function of no arguments that makes a list."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(nothing, ast.ListComp(node.elt, node.generators)), node)


def _is_globals(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in ("globals", "locals", "vars") and not node.args  # type: ignore[attr-defined]


def _loaded(target: ast.Attribute | ast.Subscript) -> ast.expr:
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    return ast.Subscript(target.value, target.slice, ast.Load())


def _last(decorator: ast.expr) -> str:
    name, path = root(decorator)
    return path[-1] if path else name or ""


@lru_cache(maxsize=8192)
def _body(node: FunctionNode | ast.Lambda) -> tuple[set[str], bool]:
    """The local names of a function, and whether it is a generator."""
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    local = set(parameters(node.args)) | (bound(list(body)) if not isinstance(node, ast.Lambda) else set())  # type: ignore[arg-type]
    return local, any(_yields(each) for each in body)


def _yields(node: ast.AST) -> bool:
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return False
    return any(_yields(each) for each in ast.iter_child_nodes(node))


def _bindings(
    arguments: ast.arguments, given: list[Value], keywords: dict[str, Value], thing: Thing
) -> list[tuple[str, Value]]:
    names = [each.arg for each in [*arguments.posonlyargs, *arguments.args]]
    defaults: Value = frozenset(thing.fields.get("default", ()))
    found = list(zip(names, given, strict=False))
    rest: Value = NOTHING.union(*given[len(names) :])
    spread = keywords.get("**", NOTHING)
    known = {*names, *(each.arg for each in arguments.kwonlyargs)}
    found += [(name, value) for name, value in keywords.items() if name in known]
    found += [(name, frozenset(part for each in spread for part in each.parts())) for name in known if spread]
    found += [(name, defaults) for name in known if name not in dict(found) and defaults]
    for star in (arguments.vararg, arguments.kwarg):
        if star:
            more = (
                rest
                if star is arguments.vararg
                else NOTHING.union(*(value for name, value in keywords.items() if name not in known))
            )
            holder = Thing()
            holder.hold(more | spread)
            found.append((star.arg, frozenset([holder])))
    return found


def _fields(cls: Thing) -> set[str]:
    return set(cls.fields).union(*[_fields(each) for each in cls.classes])


def _own(cls: Thing, name: str) -> list[Thing]:
    """The methods of that name and nothing else."""
    if name in cls.fields:
        return [each for each in cls.fields[name] if each.function is not None]
    for each in cls.classes:
        if found := _own(each, name):
            return found
    return []


def _is_opaque(cls: Thing) -> bool:
    return cls.opaque or any(_is_opaque(each) for each in cls.classes)
