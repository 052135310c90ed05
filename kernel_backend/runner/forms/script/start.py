"""Determine how a program is started: its file, its command line, and where it finds modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kernel_backend.definition.command_line import Command
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.snapshot import PROJECT, Project
from kernel_backend.snapshots.shipped import shipped_folders


class Start(NamedTuple):
    """How a program is started as `__main__`: its file, command line and module search path."""

    file: Path  # `__file__`
    argv: list[str]
    folders: Sequence[Path]  # first on the module path, in this order
    last: Sequence[Path] = ()  # where plain Python would not look
    module: str = ""  # of `python -m`

    @property
    def package(self) -> str:
        """Return the name of the package to which relative imports in the program refer."""
        return self.module.rpartition(".")[0]

    @contextmanager
    def throughout(self, main: ModuleType) -> Iterator[None]:
        """Make `main` the module `__main__` for the `with` block, with this module search path and command line."""
        before, argv, path = sys.modules["__main__"], sys.argv, list(sys.path)
        first, last = (list(dict.fromkeys(map(str, each))) for each in (self.folders, self.last))
        last = [each for each in last if each not in first]
        sys.path[:] = [*first, *(each for each in sys.path if each not in (*first, *last)), *last]
        sys.modules["__main__"], sys.argv = main, list(self.argv)
        try:
            if self.module:
                if self.package:
                    import_module(self.package)
                vars(main).update(__package__=self.package, __spec__=find_spec(self.module))
            yield
        finally:
            sys.modules["__main__"], sys.argv, sys.path[:] = before, argv, path


def start_of(
    job: LaunchSpec, definition: Path, project: Project | None, command: Command | None, words: Sequence[str]
) -> Start:
    """Return how to start the program of a job; `words` are the arguments of its command line.

    Without a `command` that runs a file of the user's `project`, the program is the file `definition`, the source of
    the user's cell. The program of a command runs under the path of the user's own file if that exists, so that it can
    read files next to it. Its modules come from the snapshot; modules that the snapshot lacks are imported from the
    user's folders.
    """
    code = Path(job.code)
    folders = shipped_folders(code, project)
    if command is None or command.program is None or project is None:
        return Start(definition, [str(definition)], [*folders, Path(job.cwd)], [code])
    below = Path(project.root, command.program)
    moved = Path(os.path.normpath(Path(job.cwd, os.path.relpath(command.program, project.cwd))))
    places = [moved, below] if job.rerun else [below, moved]  # a rerun may have an overlay of the folder
    shipped = code / PROJECT / command.program
    file = next((each for each in places if each.is_file()), shipped)
    theirs = [Path(project.root, path) for path in project.paths]
    if command.module:
        module = command.words[command.arguments - 1]
        return Start(file, [str(file), *words], [*folders, *theirs, Path(job.cwd)], [code], module)
    name, last = command.words[command.arguments - 1], [Path(job.cwd), code]
    return Start(file, [name, *words], [shipped.parent, *folders, file.parent, *theirs], last)
