"""Find the modules of the project that a program imports, and import them with their training loops rewritten."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.rewrite import Site, rewritten
from kernel_backend.model.syntax import module_tree


def project_modules(tree: ast.Module, folders: Sequence[Path], package: str = "") -> dict[str, ast.Module]:
    """Return the syntax trees of the modules in `folders` that a program imports, directly or not, by module name.

    `tree` is the program's own syntax tree, and `package` the package to which the program belongs, "" if none.
    """
    found: dict[str, ast.Module] = {}
    waiting = list(_imported(tree, package))
    while waiting:
        name = waiting.pop()
        path = None if name in found else _file(name, folders)
        if path is None:
            continue
        try:
            found[name] = module_tree(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # importing it raises the error
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imported(found[name], package)
    return found


class ProjectImports(MetaPathFinder):
    """Import finder for modules of the program's project, which rewrites their training loops."""

    def __init__(self, names: Sequence[str], loops: Sequence[TrainingLoop], builtins: Mapping[str, Any]) -> None:
        self._names, self._loops, self._builtins = frozenset(names), loops, builtins
        self.sites: dict[str, Site] = {}
        self.codes: dict[str, CodeType] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Return the spec of a project module, with a loader that rewrites it; None for other modules."""
        spec = PathFinder.find_spec(fullname, path) if fullname in self._names else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self)
        return spec

    def rewrite(self, tree: ast.Module, module: str, path: str) -> CodeType:
        """Return the code object of a module with its training loops rewritten."""
        tree, sites = rewritten(tree, module, self._loops)
        self.sites |= {each.key: each for each in sites}
        self.codes[module] = compile(tree, path, "exec", dont_inherit=True)
        return self.codes[module]

    def equip(self, module: ModuleType) -> None:
        """Give a module the builtins dict that only the program's modules have, as a mark of the program's code."""
        vars(module)["__builtins__"] = self._builtins

    def begin(self) -> None:
        """Install this finder in Python's import system."""
        sys.meta_path.insert(0, self)

    def close(self) -> None:
        """Remove this finder from Python's import system."""
        sys.meta_path.remove(self)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, imports: ProjectImports) -> None:
        super().__init__(name, path)
        self._imports = imports

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code, compiled from its source with rewritten loops; cached bytecode is not used."""
        return self._imports.rewrite(module_tree(self.get_data(self.path)), fullname, self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with the program's builtins."""
        self._imports.equip(module)
        super().exec_module(module)


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*filter(None, above), *([node.module] if node.module else [])])
            names = [start, *(f"{start}.{each.name}" if start else each.name for each in node.names)]
        for name in filter(None, names):
            parts = name.split(".")
            yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _file(name: str, folders: Sequence[Path]) -> Path | None:
    below = Path(*name.split("."))
    candidates = (
        path for folder in folders for path in (folder / below / "__init__.py", folder / below.with_suffix(".py"))
    )
    return next((path for path in candidates if path.is_file()), None)
