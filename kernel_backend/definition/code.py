"""Whether two snapshots' code means the same: comments, blank lines and where a cell stood do not count."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping

from kernel_backend.model.snapshot import CAPTURED, DEFINITION, PROJECT
from kernel_backend.model.syntax import module_tree

PARSED = 2**20  # bytes of a file


def is_code(name: str) -> bool:
    """Whether a member of an archive is a part of what runs: definition, project files, captured values."""
    return name == DEFINITION or name.split("/")[0] in (PROJECT, CAPTURED)


def meaning(name: str, content: bytes) -> bytes:
    """What of a file can change a result: of Python its syntax tree, of anything else every byte.

    Of Python that nobody has written by hand, too: a tree takes three hundred times the memory of its text.
    """
    if not name.endswith(".py") or len(content) > PARSED:
        return content
    try:
        return ast.dump(module_tree(content)).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return content


def code_id(files: Mapping[str, bytes]) -> str:
    """One digest of all the code in an archive's files; equal for code that means the same, in this Python."""
    found = hashlib.sha256()
    for name in sorted(filter(is_code, files)):
        found.update(repr((name, hashlib.sha256(meaning(name, files[name])).hexdigest())).encode())
    return found.hexdigest()
