"""Find the source of a lambda in the program that made it, and make a function of such a source."""

from __future__ import annotations

import ast
import linecache
from types import CodeType, FunctionType
from typing import Any

LAMBDA = "<lambda>"


def source_of(function: FunctionType) -> str | None:
    """Return the source of a lambda; None for other functions, and if it has a closure or its file is not there."""
    if function.__name__ != LAMBDA or function.__defaults__ or function.__kwdefaults__:
        return None
    return lambda_source(function.__code__, "".join(linecache.getlines(function.__code__.co_filename)))


def made_of(source: str, names: dict[str, Any]) -> FunctionType:
    """Return the function of a lambda expression, which reads the global variables `names`."""
    file = f"<{source}>"
    linecache.cache[file] = (len(source), None, [source], file)  # where `source_of` and tracebacks find it
    function: FunctionType = eval(compile(source, file, "eval"), names)
    return function


def lambda_source(code: CodeType, source: str) -> str | None:
    """Return the lambda expression of a program whose code is `code`; None if there is none, or if it has a closure.

    Examples
    --------
    >>> text = "views = [lambda x: x.view(-1), lambda x: x.view(2)]"
    >>> exec(text)
    >>> lambda_source(views[1].__code__, text)
    'lambda x: x.view(2)'
    """
    if code.co_freevars:
        return None
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            whole = compile(ast.Expression(node), "<lambda>", "eval")
            found = next(each for each in whole.co_consts if isinstance(each, CodeType))
            if _same(found, code):
                return ast.get_source_segment(source, node)
    return None


def _same(one: CodeType, other: CodeType) -> bool:
    names = ("co_code", "co_names", "co_varnames", "co_freevars")
    if any(getattr(one, name) != getattr(other, name) for name in names):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    return len(one.co_consts) == len(other.co_consts) and all(
        _same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else type(a) is type(b) and a == b
        for a, b in pairs
    )
