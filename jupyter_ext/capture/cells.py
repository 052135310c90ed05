"""A cell as it was executed, and its Python once IPython's own syntax is set aside."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import lru_cache

# Cell magics whose body runs as plain Python in the notebook's namespace.
_TRANSPARENT = {"time", "capture", "prun", "memit", "dlsubmit", "skip", "debug"}
_CONTINUED = re.compile(r"^([^\S\n]*(?:[\w, ]+=\s*)?[%!].*\\\n(?:.*\\\n)*.*)", re.MULTILINE)
_CELL_MAGIC = re.compile(r"\s*%%(\w+)(.*)")


@dataclass(frozen=True)
class Cell:
    """Something that the kernel ran: its text, its number (`In [4]`), where it failed, and how long it took."""

    source: str
    error_line: int | None = None  # counted from 1; None: it ran to its end
    seconds: float | None = None
    number: int | None = None
    displayed: bool = False  # its last expression had a value, which the notebook showed


@dataclass(frozen=True)
class Magic:
    """A line of IPython's own syntax, `%env A=1` or `files = !ls`, as it was written."""

    line: int
    name: str  # "env", "pip", "!" for a shell line
    argument: str
    text: str


@dataclass(frozen=True)
class Parsed:
    """A cell's Python: its lines count as in the cell. `error` is set where there is none."""

    lines: tuple[str, ...]
    tree: ast.Module
    magics: tuple[Magic, ...] = ()
    error: SyntaxError | None = field(default=None, compare=False)


@lru_cache(maxsize=4096)
def parse_cell(source: str) -> Parsed:
    """The statements of a cell; statements that IPython's syntax makes contain a call of `get_ipython`."""
    source = _without_cell_magic(source)
    lines = tuple(source.split("\n"))
    opening = _CELL_MAGIC.match(source)
    if opening:  # %%bash, %%html: no Python at all
        magic = Magic(1, f"%%{opening[1]}", opening[2].strip(), opening[0].strip())
        return Parsed(lines, ast.Module([], []), (magic,))
    try:
        return Parsed(lines, _tree(source))
    except (SyntaxError, ValueError):
        return _transformed(source, lines)


def _without_cell_magic(source: str) -> str:
    """Its first line blanked where the body below is plain Python."""
    opening = _CELL_MAGIC.match(source)
    if opening is None or opening[1] not in _TRANSPARENT:
        return source
    return "\n" * (source[: opening.end()].count("\n")) + source[opening.end() :]


def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _transformed(source: str, lines: tuple[str, ...]) -> Parsed:
    from IPython.core.inputtransformer2 import TransformerManager

    blank = len(source) - len(source.lstrip("\n"))  # IPython drops leading empty lines, which would shift all others
    joined = _CONTINUED.sub(_on_one_line, source)
    try:
        text = "\n" * blank + str(TransformerManager().transform_cell(joined[blank:]))  # type: ignore[no-untyped-call]
        tree = _tree(text)
    except SyntaxError as error:
        return Parsed(lines, ast.Module([], []), (), error)
    return Parsed(lines, tree, tuple(_magics(tree, lines)))


def _on_one_line(found: re.Match[str]) -> str:
    text = found[0]
    return text.replace("\\\n", " ") + "\n" * text.count("\n")


def _magics(tree: ast.Module, lines: tuple[str, ...]) -> list[Magic]:
    return [_magic(node, lines) for node in ast.walk(tree) if is_magic_call(node)]  # type: ignore[arg-type]


def is_magic_call(node: ast.AST) -> bool:
    """Whether this is `get_ipython().run_line_magic(...)` or one of its like."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and isinstance(node.func.value.func, ast.Name)
        and node.func.value.func.id == "get_ipython"
    )


def has_magic(node: ast.AST) -> bool:
    """Whether IPython's syntax is anywhere inside."""
    return any(is_magic_call(each) for each in ast.walk(node))


def _magic(node: ast.Call, lines: tuple[str, ...]) -> Magic:
    assert isinstance(node.func, ast.Attribute)
    texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
    line_magic = node.func.attr == "run_line_magic" and len(texts) == 2
    name, argument = (str(texts[0]), str(texts[1])) if line_magic else ("!", " ".join(map(str, texts)))
    return Magic(node.lineno, name, argument, lines[node.lineno - 1].strip())
