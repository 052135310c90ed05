"""Compare the code of two snapshots by their syntax trees, which ignore comments, blank lines and cell numbers."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping

from kernel_backend.model.snapshot import CAPTURED, DEFINITION, PROJECT
from kernel_backend.model.syntax import module_tree

PARSED = 2**20  # bytes of a file


def is_code(name: str) -> bool:
    """Return True if a file of a snapshot's archive is code: the definition, a project file, or a captured value."""
    return name == DEFINITION or name.split("/")[0] in (PROJECT, CAPTURED)


def meaning(name: str, content: bytes) -> bytes:
    """Return the part of a file's content that can affect a result: for Python code its syntax tree, as text, else all.

    Python files larger than `PARSED` are probably generated, and are compared by their bytes: a syntax tree needs three
    hundred times the memory of its text.
    """
    if not name.endswith(".py") or len(content) > PARSED:
        return content
    try:
        return ast.dump(module_tree(content)).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return content


def code_id(files: Mapping[str, bytes]) -> str:
    """Return a digest of all code among an archive's `files`.

    With one Python version, equal syntax trees give equal digests.
    """
    found = hashlib.sha256()
    for name in sorted(filter(is_code, files)):
        found.update(repr((name, hashlib.sha256(meaning(name, files[name])).hexdigest())).encode())
    return found.hexdigest()
