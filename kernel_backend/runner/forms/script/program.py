"""Run a program once from its top, as `__main__`, with its training loops rewritten in memory."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_backend.definition.script.loops import TrainingLoop, training_loops
from kernel_backend.definition.script.rewrite import Site
from kernel_backend.definition.script.signs import presumed, signs
from kernel_backend.runner.forms.script.project import ProjectImports, project_modules


class Program:
    """The module of a program, and those of its project."""

    def __init__(self, tree: ast.Module, path: Path, folders: Sequence[Path], hooks: Mapping[str, Callable[..., Any]]):
        """Find its training loops and compile it; `hooks` are the functions that the rewritten loops call."""
        modules = project_modules(tree, folders)
        self.loops: tuple[TrainingLoop, ...] = training_loops(tree, modules)
        self.presumed = presumed(signs(tree, self.loops, modules))
        self.builtins = {**vars(builtins), **hooks}
        self.module = ModuleType("__main__")
        vars(self.module).update(__file__=str(path), __builtins__=self.builtins)
        self._imports = ProjectImports(list(modules), self.loops, self.builtins)
        self._code = self._imports.rewrite(tree, "", str(path))

    @property
    def sites(self) -> Mapping[str, Site]:
        """Return the rewritten loops of all modules that were imported so far, by key."""
        return self._imports.sites

    def run(self) -> None:
        """Run the program; a `sys.exit()` without an error is its end."""
        before, argv = sys.modules["__main__"], sys.argv
        sys.modules["__main__"] = self.module
        sys.argv = [str(vars(self.module)["__file__"])]  # argparse takes its defaults
        self._imports.begin()
        try:
            exec(self._code, vars(self.module))
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        finally:
            self._imports.close()
            sys.modules["__main__"], sys.argv = before, argv
