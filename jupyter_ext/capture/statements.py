"""The top-level statements of a cell, with their facts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from jupyter_ext.capture.cells import Parsed, is_magic, parse_cell, unparsed
from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.follow.libraries import STORING
from jupyter_ext.capture.names import root
from jupyter_ext.capture.reader import read
from jupyter_ext.capture.secrets import SECRET, find_secrets


@lru_cache(maxsize=4096)
def analyse(source: str) -> tuple[Parsed, tuple[Statement, ...]]:
    """A cell's text and its top-level statements, in order; each text is looked at once."""
    parsed = parse_cell(source)
    try:
        return parsed, tuple(_statements(parsed))
    except RecursionError:  # an expression of hundreds of terms, too deep to be looked through
        return unparsed(source), ()


def _statements(parsed: Parsed) -> list[Statement]:
    tree = parsed.tree
    found: list[Statement] = []
    for node in tree.body:
        start = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        if found and start <= found[-1].end:
            found[-1].nodes.append(node)
            found[-1].end = max(found[-1].end, node.end_lineno or node.lineno)
        else:
            found.append(Statement(start, node.end_lineno or node.lineno, [node]))
    about_environment = any("environ" in line for line in parsed.lines)
    for statement in found:
        read(statement)
        statement.sets_secret = about_environment and _sets_secret(statement)
        if parsed.magics:
            statement.magics = {name for node in statement.nodes for name in _made_by_magic(node)}
    return found


def _made_by_magic(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if is_magic(node) and isinstance(node, ast.Assign):
            yield from (each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _sets_secret(statement: Statement) -> bool:
    texts = (ast.unparse(node) for node, path in _stores(statement) if "environ" in path)
    return any(SECRET.search(text) or find_secrets(text) for text in texts)


def _stores(statement: Statement) -> Iterator[tuple[ast.stmt, tuple[str | None, ...]]]:
    """What a statement stores in, and calls to store in, with the names on the way there."""
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
