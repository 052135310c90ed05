"""Parse the project modules that a snapshot contains, to search them for training loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kernel_backend.definition.command_line import Command
from kernel_backend.definition.script.own_ranks import WIRING
from kernel_backend.model.snapshot import PROJECT, Project
from kernel_backend.model.syntax import module_tree

# A project without any of these words has neither training loops nor ranks of its own.
_WORDS = re.compile("|".join(sorted({"backward", "daylight", *WIRING})).encode(), re.IGNORECASE)


def project_modules(files: Mapping[str, bytes], project: Project | None) -> dict[str, ast.Module]:
    """Return the syntax trees of a snapshot's project modules by full module name.

    The result is empty if no module contains words of code that trains or connects ranks. `files` has the files of the
    archive by path. Modules that are not valid Python are left out.
    """
    sources = {name: files[name] for name in files if name.startswith(f"{PROJECT}/") and name.endswith(".py")}
    if project is None or not any(map(_WORDS.search, sources.values())):
        return {}
    found: dict[str, ast.Module] = {}
    for member, source in sorted(sources.items()):
        name = _name(PurePosixPath(member), project)
        try:
            found[name] = module_tree(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return found


def shipped_modules(code: Path, project: Project | None) -> dict[str, ast.Module]:
    """Return the syntax trees of the project's modules in the unpacked snapshot at `code`, by module name."""
    paths = (code / PROJECT).rglob("*.py") if project else ()
    return project_modules({path.relative_to(code).as_posix(): path.read_bytes() for path in paths}, project)


def without_program(modules: Mapping[str, ast.Module], command: Command | None) -> dict[str, ast.Module]:
    """Return the project's modules, except the file that the command runs as its program.

    Examples
    --------
    >>> train = Command(words=("python", "src/train.py"), at=1, program="src/train.py")
    >>> list(without_program({"train": ast.parse(""), "net": ast.parse("")}, train))
    ['net']
    """
    if command is None or command.program is None:
        return dict(modules)
    own = PurePosixPath(command.program).with_suffix("").parts
    return {name: tree for name, tree in modules.items() if own[-len(name.split(".")) :] != tuple(name.split("."))}


def _name(member: PurePosixPath, project: Project) -> str:
    """Return the module name under which Python imports a file of the archive, such as `net.blocks`.

    It is relative to the innermost folder of the project that is on `sys.path`.
    """
    below = [
        member.relative_to(folder)
        for folder in (PurePosixPath(PROJECT) / path for path in project.paths)
        if member.is_relative_to(folder)
    ]
    path = min(below, key=lambda each: len(each.parts), default=member.relative_to(PROJECT)).with_suffix("")
    return ".".join(path.parts[:-1] if path.name == "__init__" else path.parts)
