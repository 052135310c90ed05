"""Parse the project modules that a snapshot contains, to search them for training loops."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kernel_backend.model.snapshot import PROJECT, Project
from kernel_backend.model.syntax import module_tree

_TRAINS = b"backward"


def project_modules(files: Mapping[str, bytes], project: Project | None) -> dict[str, ast.Module]:
    """Return the syntax trees of a snapshot's modules by full name; empty if no module can contain a training loop.

    `files` are the archive members by name. Modules that are not valid Python are left out.
    """
    sources = {name: files[name] for name in files if name.startswith(f"{PROJECT}/") and name.endswith(".py")}
    if project is None or not any(_TRAINS in source for source in sources.values()):
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
    """Return the syntax trees of the project's modules in an unpacked snapshot, by name."""
    paths = (code / PROJECT).rglob("*.py") if project else ()
    return project_modules({path.relative_to(code).as_posix(): path.read_bytes() for path in paths}, project)


def _name(member: PurePosixPath, project: Project) -> str:
    """Return the name under which a member is imported, relative to the innermost folder on the module path."""
    below = [
        member.relative_to(folder)
        for folder in (PurePosixPath(PROJECT) / path for path in project.paths)
        if member.is_relative_to(folder)
    ]
    path = min(below, key=lambda each: len(each.parts), default=member.relative_to(PROJECT)).with_suffix("")
    return ".".join(path.parts[:-1] if path.name == "__init__" else path.parts)
