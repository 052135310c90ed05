"""Parse executed cells, converting IPython syntax (magics, shell lines) to comments."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TypeGuard

# Cell magics whose body runs as plain Python in the notebook's namespace.
_TRANSPARENT = {"time", "capture", "prun", "memit", "dlsubmit", "skip", "debug"}
_TIMED = re.compile(r"^(\s*)%(?:time|prun)\s+(?=[\w(\[{'\"])", re.MULTILINE)
_CONTINUED = re.compile(r"^([^\S\n]*(?:[\w, ]+=\s*)?[%!].*\\\n(?:.*\\\n)*.*)", re.MULTILINE)
_NOTHING = ast.Module([], [])
_CELL_MAGIC = re.compile(r"\s*%%(\w+)(.*)")
_SUBMITTED = re.compile(r"(?:[^\S\n]*(?:#.*)?\n)*%%dlsubmit\b.*")  # comments may stand above it


@dataclass(frozen=True)
class Cell:
    """Executed notebook cell: source, execution count (`In [4]`), line of the error if it failed, and duration."""

    source: str
    error_line: int | None = None  # counted from 1; None: it ran to its end
    seconds: float | None = None
    number: int | None = None
    displayed: bool = False  # its last expression had a value, which the notebook displayed
    retained: frozenset[str] = frozenset()  # names of its functions whose notebook values are retained
    written: str | None = None  # its whole text, if `source` lacks statements that a job ran instead of the notebook

    @property
    def text(self) -> str:
        """Return the cell's whole text, including statements that a job ran instead of the notebook.

        `source` lacks those statements.
        """
        return self.source if self.written is None else self.written


@dataclass(frozen=True)
class Magic:
    """Line of IPython syntax in its original form, such as `%env A=1` or `files = !ls`."""

    line: int
    name: str  # "env", "pip", "!" for a shell line
    argument: str
    text: str


@dataclass(frozen=True)
class Parsed:
    """Parsed notebook cell, with the cell's own line numbers; the tree is empty if the cell contains no Python."""

    lines: tuple[str, ...]  # as they were written
    plain: tuple[str, ...]  # with IPython syntax replaced by comments
    tree: ast.Module
    magics: tuple[Magic, ...] = ()


def magics_run(cell: Cell, parsed: Parsed) -> list[Magic]:
    """Return the magics of a cell that were executed: all, or those above the failing line if it failed."""
    return [each for each in parsed.magics if cell.error_line is None or each.line < cell.error_line]


def parse_cell(source: str) -> Parsed:
    """Parse a cell into statements; IPython syntax such as magics becomes calls of `get_ipython`."""
    source = _TIMED.sub(r"\1", _without_cell_magic(source))
    lines = tuple(source.split("\n"))
    opening = _CELL_MAGIC.match(source)
    if opening:  # %%bash, %%html: contains no Python
        magic = Magic(1, f"%%{opening[1]}", opening[2].strip(), opening[0].strip())
        return Parsed(lines, _commented(lines), _NOTHING, (magic,))
    if source.lstrip().startswith("In ["):  # a pasted prompt, which is also valid Python (an annotation)
        source = _cleaned(source)
        lines = tuple(source.split("\n"))
    try:
        tree = ast.parse(source)
    except RecursionError:  # an expression of thousands of terms
        return unparsed(source)
    except (SyntaxError, ValueError):
        source = _cleaned(source)
        return _transformed(source, tuple(source.split("\n")))
    return _parsed(lines, tree) if "get_ipython" in source else Parsed(lines, lines, tree)


def unparsed(source: str) -> Parsed:
    """Return a Parsed for a cell that is not valid Python: its source lines, without statements and magics."""
    lines = tuple(source.split("\n"))
    return Parsed(lines, lines, _NOTHING)


def _parsed(lines: tuple[str, ...], tree: ast.Module) -> Parsed:
    magics = [_magic(node, lines) for node in ast.walk(tree) if is_magic(node)]
    return Parsed(lines, _without_magics(lines, magics), tree, tuple(magics))


def _commented(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"# {line}" for line in lines)


def _without_magics(lines: tuple[str, ...], magics: list[Magic]) -> tuple[str, ...]:
    """Return the lines with magics replaced by comments, or by `pass` within a block; line numbers do not change."""
    plain = list(lines)
    for magic in magics:
        at = magic.line - 1
        text = lines[at]
        indent = text[: len(text) - len(text.lstrip())]
        plain[at] = f"{indent}pass  # {text.strip()}" if indent else f"# {text}"
        while lines[at].endswith("\\") and at + 1 < len(lines):
            at += 1
            plain[at] = f"# {lines[at]}"
    return tuple(plain)


def _without_cell_magic(source: str) -> str:
    """Return the cell with an empty line in place of a magic such as `%%time`, below which the cell is plain Python.

    Cells without such a magic are returned unchanged.
    """
    opening = _SUBMITTED.match(source) or _CELL_MAGIC.match(source)
    if opening is None or (opening.lastindex and opening[1] not in _TRANSPARENT):
        return source
    return "\n" * (source[: opening.end()].count("\n")) + source[opening.end() :]


def _cleaned(source: str) -> str:
    """Return the cell's source without common indentation and pasted prompts, as IPython runs it."""
    from IPython.core.inputtransformer2 import classic_prompt, ipython_prompt, leading_indent

    lines = source.split("\n")
    blank = next((index for index, line in enumerate(lines) if line.strip()), 0)
    retained = [f"{line}\n" for line in lines[blank:]]
    for clean in (leading_indent, classic_prompt, ipython_prompt):
        retained = clean(retained)  # type: ignore[no-untyped-call]
    return "\n".join([*lines[:blank], "".join(retained)])[:-1]


def _transformed(source: str, lines: tuple[str, ...]) -> Parsed:
    from IPython.core.inputtransformer2 import TransformerManager

    blank = len(source) - len(source.lstrip("\n"))  # IPython drops leading empty lines, which would shift all others
    joined = _CONTINUED.sub(_on_one_line, source)
    try:
        text = "\n" * blank + str(TransformerManager().transform_cell(joined[blank:]))  # type: ignore[no-untyped-call]
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return unparsed("\n".join(lines))
    return _parsed(lines, tree)


def _on_one_line(found: re.Match[str]) -> str:
    text = found[0]
    return text.replace("\\\n", " ") + "\n" * text.count("\n")


def is_magic(node: ast.AST) -> TypeGuard[ast.Expr | ast.Assign]:
    """Return True if a statement comes from IPython syntax, as `get_ipython().run_line_magic(...)` does."""
    call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Call)
        and isinstance(call.func.value.func, ast.Name)
        and call.func.value.func.id == "get_ipython"
    )


def _magic(node: ast.Expr | ast.Assign, lines: tuple[str, ...]) -> Magic:
    call = node.value
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Attribute)
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    line_magic = call.func.attr == "run_line_magic" and len(texts) == 2
    name, argument = (str(texts[0]), str(texts[1])) if line_magic else ("!", " ".join(map(str, texts)))
    return Magic(node.lineno, name, argument, lines[node.lineno - 1].strip())
