"""Run a program once from its top, as `__main__`, with its training loops rewritten in memory."""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType, ModuleType
from typing import Any

from kernel_backend.definition.script.loops import TrainingLoop, training_loops
from kernel_backend.definition.script.rewrite import Site
from kernel_backend.definition.script.signs import by_the_clock, signs
from kernel_backend.runner.forked_children import children_end_here
from kernel_backend.runner.forms.script.iterators import BUILTINS
from kernel_backend.runner.forms.script.project import ProjectImports, project_modules
from kernel_backend.runner.forms.script.start import Start
from kernel_backend.runner.process_end import ending_normally


class Program:
    """Program that can be run: its main module, and the modules of its project."""

    def __init__(self, tree: ast.Module, start: Start, source: str = "", rounds: bool = True) -> None:
        """Find the program's training loops. `tree` is the syntax tree of its source.

        `start` has its file, command line and module search path. If `source` is given, tracebacks and `inspect` read
        its lines in place of the file's, which the user may have edited since the submission. Without `rounds`, a loop
        over folds or seeds counts as one of epochs.
        """
        self._start = start
        if source:
            name = str(start.file)
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        modules = project_modules(tree, start.folders, start.package)
        found = training_loops(tree, modules)
        self.loops: tuple[TrainingLoop, ...] = tuple(replace(each, rounds=each.rounds and rounds) for each in found)
        self.signs = signs(tree, self.loops, modules)
        self.by_clock = by_the_clock(tree, modules)
        self.builtins: dict[str, Any] = {**vars(builtins), **BUILTINS}
        self.module = ModuleType("__main__")
        vars(self.module).update(__file__=str(start.file), __builtins__=self.builtins)
        self._imports = ProjectImports(list(modules), self.loops, self.builtins)
        self._code = self._imports.rewrite(tree, "", str(start.file))

    @property
    def sites(self) -> Mapping[str, Site]:
        """Return the rewritten training loops of the modules that are imported so far, by key."""
        return self._imports.sites

    @property
    def deepest(self) -> int:
        """Return the nesting depth of the innermost training loops."""
        return max((each.depth for each in self.loops), default=0)

    def codes(self, module: str) -> Sequence[CodeType]:
        """Return all code objects of a module of the program."""
        return list(_within(self._code if module == "__main__" else self._imports.codes[module]))

    def run(self, hooks: Mapping[str, Callable[..., Any]]) -> None:
        """Run the program from its top; its rewritten loops call the functions `hooks`, given by name.

        A `sys.exit()` without an error ends it normally.
        """
        self.builtins.update(hooks)
        self._imports.begin()
        try:
            with ending_normally(), children_end_here(), self._start.throughout(self.module):
                exec(self._code, vars(self.module))
        finally:
            self._imports.close()

    @contextmanager
    def as_main(self) -> Iterator[None]:
        """Make the program the module `__main__` for the `with` block, to which pickles of its objects refer."""
        before, sys.modules["__main__"] = sys.modules["__main__"], self.module
        try:
            yield
        finally:
            sys.modules["__main__"] = before


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _within(each)
