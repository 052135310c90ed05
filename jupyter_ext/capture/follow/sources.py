"""Find where functions of project modules seed or draw random numbers, from the modules' source."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from jupyter_ext.capture.facts import FunctionNode
from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.loaded import is_of_project

_CHOICES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match, ast.BoolOp)
_ON_CREATION = ("__new__", "__init__", "__post_init__", "__enter__")
_FARTHEST = 20  # re-exports that are followed

Definition = FunctionNode | ast.ClassDef


class RandomUse(NamedTuple):
    """Random states that a call seeds, may seed, and draws from."""

    seeded: frozenset[str] = frozenset()
    perhaps: frozenset[str] = frozenset()
    drawn: frozenset[str] = frozenset()

    def __or__(self, other: RandomUse) -> RandomUse:
        return RandomUse(*(one | two for one, two in zip(self, other, strict=True)))


def random_use(package: str, path: Sequence[str]) -> RandomUse | None:
    """Return how a call of `package.path()` uses random states; with an empty path, how importing it does.

    None if its source is not part of the project, or is not found.
    """
    found = _find(".".join((package, *path))) if _is_of_project(package) else None
    return _Reader().read(*found) if found is not None else None


def random_use_of_method(package: str, name: str) -> RandomUse:
    """Return how methods called `name` use random states, over all classes of a project package."""
    use = RandomUse()
    for module in _modules(package) if _is_of_project(package) else ():
        for each in module.definitions.values():
            if isinstance(each, ast.ClassDef) and name in _methods(each):
                use |= _Reader().read(module, each, name)
    return use


def module_imported_by(module: str, name: str) -> tuple[str, str] | None:
    """Return package and path of the module that `from module import name` binds; None if it binds no module."""
    if not _is_of_project(module.partition(".")[0]):
        return None
    found = getattr(sys.modules.get(module), name, None)
    if not isinstance(found, ModuleType):
        return None
    package, _, path = found.__name__.partition(".")
    return package, path


def _is_of_project(package: str) -> bool:
    module = sys.modules.get(package)
    return module is not None and package not in sys.stdlib_module_names and is_of_project(module)


class _Module(NamedTuple):
    package: str  # that relative imports begin at
    tree: ast.Module
    imports: dict[str, str]  # name -> full dotted name
    definitions: dict[str, Definition]


def _module(name: str) -> _Module | None:
    """Return the parsed source of an imported project module; None for other modules."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not _is_of_project(name.partition(".")[0]) or not isinstance(file, str) or not file.endswith(".py"):
        return None
    try:
        return _parsed(name, file, os.stat(file).st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=256)
def _parsed(name: str, file: str, changed: int) -> _Module:
    with open(file, "rb") as source:
        tree = ast.parse(source.read())
    package = name if os.path.basename(file) == "__init__.py" else name.rpartition(".")[0]
    definitions = {node.name: node for node in tree.body if isinstance(node, Definition)}
    return _Module(package, tree, dict(_imports(_own_nodes(tree.body), package)), definitions)


def _own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes and their descendants, except those inside functions and classes."""
    queue = list(nodes)
    while queue:
        node = queue.pop(0)
        yield node
        if not isinstance(node, Definition | ast.Lambda):
            queue = [*ast.iter_child_nodes(node), *queue]


def _imports(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (each.asname, each.name) if each.asname else (each.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            try:
                source = importlib.util.resolve_name(source, package)
            except ImportError:
                continue
            for each in node.names:
                yield each.asname or each.name, f"{source}.{each.name}"


def _modules(package: str) -> Iterator[_Module]:
    names = [each for each in list(sys.modules) if each == package or each.startswith(f"{package}.")]
    yield from filter(None, map(_module, names))


def _find(dotted: str) -> tuple[_Module, Definition | None] | None:
    """Return module and definition to which a dotted name leads through re-exports; None if it is not found."""
    for _ in range(_FARTHEST):
        parts = dotted.split(".")
        module, count = next(
            ((found, at) for at in range(len(parts), 0, -1) if (found := _module(".".join(parts[:at])))), (None, 0)
        )
        if module is None:
            return None
        if count == len(parts):
            return module, None
        name, rest = parts[count], parts[count + 1 :]
        if name in module.definitions:
            definition = module.definitions[name]
            if rest and isinstance(definition, ast.ClassDef):
                method = _methods(definition).get(rest[0])
                return (module, method) if method else None
            return module, definition
        if name not in module.imports:
            return None
        dotted = ".".join((module.imports[name], *rest))
    return None


def _methods(node: ast.ClassDef) -> dict[str, FunctionNode]:
    return {each.name: each for each in node.body if isinstance(each, FunctionNode)}


class _Reader:
    """Search of a function, and of the project functions that it calls, for uses of random states."""

    def __init__(self) -> None:
        self._seen: set[ast.AST] = set()

    def read(self, module: _Module, definition: Definition | None, method: str = "") -> RandomUse:
        if isinstance(definition, ast.ClassDef):
            methods = _methods(definition)
            bodies = [methods[name] for name in ((method,) if method else _ON_CREATION) if name in methods]
            use = RandomUse()
            for each in bodies:
                use |= self._body(module, each, methods)
            return use
        return self._body(module, definition or module.tree, {})

    def _body(self, module: _Module, node: FunctionNode | ast.Module, methods: dict[str, FunctionNode]) -> RandomUse:
        if node in self._seen:
            return RandomUse()
        self._seen.add(node)
        own = {**module.imports, **dict(_imports(_own_nodes(node.body), module.package))}
        use = RandomUse()
        for each in node.body:
            use |= self._statement(module, each, own, methods, surely=True)
        return use

    def _statement(
        self, module: _Module, node: ast.AST, names: dict[str, str], methods: dict[str, FunctionNode], *, surely: bool
    ) -> RandomUse:
        if isinstance(node, Definition | ast.Lambda):
            return RandomUse()
        use = RandomUse()
        surely = surely and not isinstance(node, _CHOICES)
        for each in ast.iter_child_nodes(node):
            use |= self._statement(module, each, names, methods, surely=surely)
        if isinstance(node, ast.Import | ast.ImportFrom):
            for _, dotted in _imports([node], module.package):
                inner = _find(dotted)
                use |= self._body(inner[0], inner[0].tree, {}) if inner is not None else RandomUse()
        if isinstance(node, ast.Call):
            found = self._call(module, node, names, methods)
            use |= found if surely else found._replace(seeded=frozenset(), perhaps=found.seeded | found.perhaps)
        return use

    def _call(
        self, module: _Module, node: ast.Call, names: dict[str, str], methods: dict[str, FunctionNode]
    ) -> RandomUse:
        head, *path = _dotted(node.func)
        if head == "self" and len(path) == 1 and path[0] in methods:
            return self._body(module, methods[path[0]], methods)
        if not path and head in module.definitions and head not in names:
            return self.read(module, module.definitions[head])
        if head not in names:
            return RandomUse()
        dotted = ".".join((names[head], *path))
        inner = _find(dotted)
        if inner is not None:
            return self.read(*inner)
        package, *rest = dotted.split(".")
        seeded, drawn = libraries.random_effect(package, tuple(rest))
        return RandomUse(seeded, frozenset(), frozenset() if libraries.seeded(node) else drawn)


def _dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]
