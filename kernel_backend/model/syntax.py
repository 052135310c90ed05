"""Parse Python's syntax trees, one at a time.

In Python 3.11 two threads that parse at once disturb each other if garbage is collected meanwhile: SystemError, `AST
constructor recursion depth mismatch` (https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
import threading

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_LOCK = threading.RLock()  # what garbage takes along may parse, too


def module_tree(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's text; raises as `ast.parse` does."""
    with _LOCK:
        return ast.parse(source)


def expression_tree(source: str) -> ast.expr:
    """Return the syntax tree of an expression; raises as `ast.parse` does."""
    with _LOCK:
        return ast.parse(source, mode="eval").body
