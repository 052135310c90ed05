"""Split a cell into its top-level statements, and collect the names that each uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from jupyter_ext.capture.cells import Parsed, is_magic, parse_cell, unparsed
from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.follow.libraries import STORING
from jupyter_ext.capture.names import root
from jupyter_ext.capture.reader import read
from kernel_backend.secret_scan import find_secrets, is_secret, names_secret


@lru_cache(maxsize=4096)
def analyse(source: str) -> tuple[Parsed, tuple[Statement, ...]]:
    """Parse a cell; return its source lines and tree, and its top-level statements in order. Results are cached."""
    parsed = parse_cell(source)
    try:
        return parsed, tuple(_statements(parsed))
    except RecursionError:  # an expression of hundreds of terms, too deep to traverse
        return unparsed(source), ()


def _statements(parsed: Parsed) -> list[Statement]:
    tree = parsed.tree
    found: list[Statement] = []
    for node in tree.body:
        start = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        statement = Statement(start, node.end_lineno or node.lineno, [node])
        if found and start == found[-1].end:
            previous = found[-1].nodes[-1]
            statement.after = _column(parsed.lines[start - 1], node.col_offset)
            found[-1].before = _column(parsed.lines[start - 1], previous.end_col_offset or 0)
        found.append(statement)
    about_environment = any("environ" in line for line in parsed.lines)
    for statement in found:
        read(statement)
        statement.sets_secret = about_environment and _sets_secret(statement)
        if parsed.magics:
            statement.magics = {name for node in statement.nodes for name in _made_by_magic(node)}
    return found


def _column(line: str, offset: int) -> int:
    """Convert a column in bytes, as syntax trees have it, to a column in characters of the line."""
    return len(line.encode()[:offset].decode(errors="ignore"))


def _made_by_magic(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if is_magic(node) and isinstance(node, ast.Assign):
            yield from (each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _sets_secret(statement: Statement) -> bool:
    nodes = [node for node, path in _stores(statement) if "environ" in path]
    return any(_holds_secret(node) or find_secrets(ast.unparse(node)) for node in nodes)


def _holds_secret(statement: ast.stmt) -> bool:
    """Return True if a statement sets a secret, such as a password.

    If it sets a name to a literal, as in `environ["TOKEN"] = "x"`, name and value are judged together. Otherwise it is
    enough that some name or string in the statement names a secret.
    """
    texts: set[str] = set()
    written = set[ast.AST]()
    for node in ast.walk(statement):
        for name, key, value in _pairs(node):
            if not isinstance(value, ast.Constant):
                texts.add(name)
            elif is_secret(name, value.value):
                return True
            written |= {key, value}
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            texts.add(node.id)
        elif isinstance(node, ast.Constant) and node not in written:
            texts.add(str(node.value))
    return any(map(names_secret, texts))


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.expr]]:
    """Yield (name, syntax node, value expression) for each name that a node sets by a string literal or a keyword.

    Examples are `environ["A"] = "1"`, `setdefault("A", "1")` and `update(A="1")`.
    """
    found: list[tuple[ast.AST | None, ast.expr]] = []
    if isinstance(node, ast.Assign):
        found = [(each.slice, node.value) for each in node.targets if isinstance(each, ast.Subscript)]
    elif isinstance(node, ast.Call) and len(node.args) == 2:
        found = [(node.args[0], node.args[1])]
    elif isinstance(node, ast.Dict):
        found = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg, node, node.value
    for key, value in found:
        if isinstance(key, ast.Constant):
            yield str(key.value), key, value


def _stores(statement: Statement) -> Iterator[tuple[ast.stmt, tuple[str | None, ...]]]:
    """Yield assignments to elements, and calls of storing methods, with the names on the path to the stored place.

    For `config.train["lr"] = 1` the names are `config` and `train`.
    """
    for top in statement.nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                place: ast.AST = node
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STORING:
                place = node.func
            else:
                continue
            name, path = root(place)
            yield top, (name, *path)
