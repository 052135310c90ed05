"""Parse Python source into syntax trees, in one thread at a time.

In Python 3.11, concurrent parsing fails if garbage is collected meanwhile: SystemError, `AST constructor recursion
depth mismatch` (https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import threading

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_CODING = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+", re.ASCII)  # PEP 263

_LOCK = threading.RLock()  # reentrant, since finalizers run by the garbage collector may parse, too


def module_tree(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's source; raises the same errors as `ast.parse`."""
    with _LOCK:
        return ast.parse(source)


def source_text(data: bytes) -> str:
    """Return a file's source as text, decoded as Python does: by its byte order mark or coding line, else as UTF-8.

    A coding line names UTF-8 in the result, since the text will be stored as that. Raises SyntaxError or
    UnicodeDecodeError if Python could not read the file either.
    """
    lines = importlib.util.decode_source(data).split("\n")
    return "\n".join([*(_CODING.sub(r"\1utf-8", line) for line in lines[:2]), *lines[2:]])


def expression_tree(source: str) -> ast.expr:
    """Return the syntax tree of an expression; raises the same errors as `ast.parse`."""
    with _LOCK:
        return ast.parse(source, mode="eval").body
