"""Parse the project modules that a snapshot contains, to search them for training loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kernel_backend.definition.command_line import Command
from kernel_backend.definition.script.own_ranks import WIRING
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.sizes import size
from kernel_backend.model.snapshot import PROJECT, Project
from kernel_backend.model.syntax import module_tree

# A project without any of these words has neither training loops nor ranks of its own.
_WORDS = re.compile("|".join(sorted({"backward", "daylight", *WIRING})).encode(), re.IGNORECASE)
MOST_SOURCE = 2 * 2**20  # bytes of modules that are parsed: a tree has up to a thousand times the bytes of its text


def is_module(name: str) -> bool:
    """Return True if a file of a snapshot's archive is a module of the user's project."""
    return name.startswith(f"{PROJECT}/") and name.endswith(".py")


def project_modules(files: Mapping[str, bytes], project: Project | None) -> dict[str, ast.Module]:
    """Return the syntax trees of a snapshot's project modules by full module name.

    The result is empty if no module contains words of code that trains or connects ranks. `files` has the files of the
    archive by path. Modules that are not valid Python are left out, and in a project of more than `MOST_SOURCE` bytes
    those without such words. Raises InvalidRequest if the others have more than that.
    """
    sources = {name: files[name] for name in files if is_module(name)}
    training = {name: source for name, source in sources.items() if _WORDS.search(source)}
    if project is None or not training:
        return {}
    found: dict[str, ast.Module] = {}
    for member, source in sorted((sources if _size(sources) <= MOST_SOURCE else _limited(training)).items()):
        name = _name(PurePosixPath(member), project)
        try:
            found[name] = module_tree(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return found


def _limited(sources: dict[str, bytes]) -> dict[str, bytes]:
    if _size(sources) > MOST_SOURCE:
        largest = max(sources, key=lambda name: len(sources[name])).removeprefix(f"{PROJECT}/")
        raise InvalidRequest(
            f"the modules of this project that may train have {size(_size(sources))} of source, and at most "
            f"{size(MOST_SOURCE)} are read: leave some out, such as {largest}, or install them as a package"
        )
    return sources


def _size(sources: Mapping[str, bytes]) -> int:
    return sum(map(len, sources.values()))


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
