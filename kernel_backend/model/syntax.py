"""Parse Python source into syntax trees, in one thread at a time.

In Python 3.11, concurrent parsing fails if garbage is collected meanwhile: SystemError, `AST constructor recursion
depth mismatch` (https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
import threading

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_LOCK = threading.RLock()  # reentrant, since finalizers run by the garbage collector may parse, too


def module_tree(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's source; raises the same errors as `ast.parse`."""
    with _LOCK:
        return ast.parse(source)


def expression_tree(source: str) -> ast.expr:
    """Return the syntax tree of an expression; raises the same errors as `ast.parse`."""
    with _LOCK:
        return ast.parse(source, mode="eval").body
