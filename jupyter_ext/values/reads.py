"""Find which of some names a cell reads when it runs, itself and by the functions of the notebook that it calls."""

from __future__ import annotations

import ast
import dis
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from jupyter_ext.capture.cells import Parsed
from kernel_backend.definition.script.bindings import bound_by, names_read
from kernel_backend.model.syntax import FunctionNode

_NAME = re.compile(r"[^\W\d]\w*")
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "DELETE_GLOBAL"})
_BODIES = ("body", "orelse", "finalbody")
_OWN = ("dl", "dlsubmit", "dlrun", "load_ext", "reload_ext")  # magics whose arguments read no variables


def reads(cell: Parsed, wanted: Collection[str], held: Mapping[str, Any]) -> set[str]:
    """Return those of the names `wanted` that a cell reads, before it binds them itself.

    `held` are the notebook's variables: functions and classes of the notebook that the cell uses read names, too, and
    so do those that they use.
    """
    found = _Reads()
    found.take(cell.tree.body)
    used = found.names
    for magic in cell.magics:
        if magic.name.lstrip("%") not in _OWN:
            used |= {name for name in _NAME.findall(magic.argument) if name in wanted}
    return _reached(used, held) & set(wanted)


class _Reads:
    """Names that statements read in their order, but for those that an earlier statement of them has bound.

    The body of a function is read where the function's name is. What a loop or a `with` binds counts as bound.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._bound: set[str] = set()
        self._bodies: dict[str, set[str]] = {}  # names that functions and classes of the cell read when they are used

    def take(self, body: Iterable[ast.stmt]) -> None:
        """Add what these statements read."""
        for each in body:
            if isinstance(each, ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.If):
                self._block(each)
            else:
                self._simple(each)

    def _block(self, block: ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.If) -> None:
        before = set(self._bound)
        for name, value in ast.iter_fields(block):
            if name not in _BODIES and isinstance(value, ast.AST | list):
                for each in value if isinstance(value, list) else [value]:
                    self._read(each)
        targets = [block.target] if isinstance(block, ast.For | ast.AsyncFor) else []
        targets += [each.optional_vars for each in getattr(block, "items", []) if each.optional_vars is not None]
        self._bound |= {node.id for each in targets for node in ast.walk(each) if isinstance(node, ast.Name)}
        for body in _BODIES:
            self.take(getattr(block, body, []))
        for each in getattr(block, "handlers", []):
            self.take(each.body)
        if isinstance(block, ast.If):
            self._bound = before

    def _simple(self, statement: ast.stmt) -> None:
        if isinstance(statement, FunctionNode | ast.ClassDef):
            self._bodies[statement.name] = set(_loads(statement))
        self._read(statement)
        self._bound |= bound_by([statement]).keys()

    def _read(self, node: ast.AST) -> None:
        found = names_read(node)
        for each in ast.walk(node):
            if isinstance(each, ast.Lambda):
                found |= set(_loads(each.body))
            elif isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
                found.add(each.target.id)
            elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del):
                found.add(each.id)
        found = found.union(*(self._bodies[name] for name in found & self._bodies.keys()))
        self.names |= found - self._bound


def _loads(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))


def _reached(names: Iterable[str], held: Mapping[str, Any]) -> set[str]:
    found = set(names)
    queue = list(found)
    while queue:
        new = {each for code in _codes(held.get(queue.pop()), held) for each in globals_of(code)} - found
        found |= new
        queue += new
    return found


def _codes(value: Any, held: Mapping[str, Any]) -> Iterator[CodeType]:
    """Yield the code of a function of the notebook, or of the methods of a class of the notebook or its instance."""
    value = value.__func__ if isinstance(value, MethodType) else value
    value = value.func if isinstance(value, functools.partial) else value
    if isinstance(value, FunctionType):
        if value.__globals__ is held:
            yield value.__code__
        return
    kind = value if isinstance(value, type) else type(value)
    for each in kind.__mro__ if kind.__module__ == "__main__" else ():
        for method in vars(each).values():
            method = method.__func__ if isinstance(method, staticmethod | classmethod) else method
            if isinstance(method, FunctionType) and method.__globals__ is held:
                yield method.__code__


@functools.lru_cache(maxsize=4096)
def globals_of(code: CodeType) -> frozenset[str]:
    """Return the global names that a function's code, and functions within it, read."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname in _GLOBAL}
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(found).union(*map(globals_of, inner))
