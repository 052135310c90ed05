"""Warn about magics and shell commands that changed files or the working directory: a job does not run them again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from jupyter_ext.capture.cells import Magic, magics_run
from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.facts import FunctionNode

_SHELLS = {"!", "%%bash", "%%sh", "%%script", "%%writefile", "%%file", "sx", "system"}
_LOOKING = {"ls", "cat", "head", "tail", "pip", "pip3", "conda", "echo", "pwd", "wc", "du", "df", "which", "nvidia-smi"}
_WORD = re.compile(r"[^\s'\"<>|;&(){}$=]+")
_PART = re.compile(r"[^/\\?#]+")
_SHORTEST = 3  # letters; shorter names are not specific enough


def dropped(executed: Executed, needed: Sequence[int]) -> Iterator[str]:
    """Yield warnings about commands that changed files or the working directory in the notebook, but not in a job.

    There is a warning for each magic or shell command that may have written a file, if a statement of the job has a
    string with the name of this file, since it may read the file. So there is for each magic or shell command within a
    function, class or block of the job. `needed` has the indices of the job's statements.
    """
    names = _named(executed, needed)
    for cell, parsed in zip(executed.cells, executed.parsed, strict=True):
        for magic in magics_run(cell, parsed):
            found = sorted(_files(magic, parsed.lines) & names)
            if found:
                yield (
                    f"cell [{cell.number}] line {magic.line} ({_short(magic.text)}) does not run in a job, which reads "
                    f"{found[0]} as it is where it runs"
                )
    yield from _within(executed, needed)
    yield from _moved(executed, needed)


def _within(executed: Executed, needed: Sequence[int]) -> Iterator[str]:
    """Yield a warning for each magic or shell command in a block of a needed statement, where `pass` replaces it."""
    for time in needed:
        statement, cell = executed.statements[time], executed.cell(time)
        parsed = executed.parsed[executed.index(time)]
        for magic in parsed.magics:
            in_block = parsed.lines[magic.line - 1][:1].isspace()
            if in_block and statement.start <= magic.line <= statement.end:
                yield (
                    f"cell [{cell.number}] line {magic.line} ({_short(magic.text)}) does not run in a job: "
                    "write it as Python, such as subprocess.run(...)"
                )


def _named(executed: Executed, needed: Sequence[int]) -> set[str]:
    """Return all path components, such as `data` and `a.csv`, in string constants of the needed statements."""
    nodes = [each for time in needed for node in executed.statements[time].nodes for each in ast.walk(node)]
    texts = [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return {part for text in texts if len(text) < 1000 and "\n" not in text for part in _PART.findall(text)}


def _files(magic: Magic, lines: Sequence[str]) -> set[str]:
    """Return the path components in a command's arguments, as the command may have written the files that they name.

    Empty for commands that write no files, such as `ls`, and for magics other than shell commands and `%%writefile`.
    `lines` are all lines of the magic's cell, with the body of a cell magic such as `%%bash`.
    """
    if magic.name not in _SHELLS:
        return set()
    body = "\n".join(lines[magic.line :]) if magic.name in ("%%bash", "%%sh", "%%script") else ""
    commands = [words for line in [magic.argument, *body.split("\n")] if (words := _WORD.findall(line))]
    writes = magic.name in ("%%writefile", "%%file")
    words = [word for each in commands if writes or each[0] not in _LOOKING for word in (each if writes else each[1:])]
    parts = [part for word in words if not word.startswith("-") for part in _PART.findall(word)]
    return {part for part in parts if len(part) >= _SHORTEST}


def _moved(executed: Executed, needed: Sequence[int]) -> Iterator[str]:
    """Yield a warning if the working directory changed after a needed statement ran that may open files.

    In a notebook, two statements may run in different directories. A job runs all statements in the notebook's last
    directory, so a relative path may name another file there.
    """
    moves = [
        (index, magic.line, magic.text)
        for index, (cell, parsed) in enumerate(zip(executed.cells, executed.parsed, strict=True))
        for magic in magics_run(cell, parsed)
        if magic.name in ("cd", "pushd", "popd")
    ]
    for time, statement in enumerate(executed.statements[: executed.start]):
        moves += (
            [(executed.index(time), statement.start, executed.text(time))] if _changes_folder(statement.nodes) else []
        )
    if not moves:
        return
    last, line, text = max(moves)
    for time in needed:
        statement, index = executed.statements[time], executed.index(time)
        if (index, statement.start) < (last, line) and _calls_with_a_text(statement.nodes):
            first, other = executed.cell(time).number, executed.cells[last].number
            yield (
                f"cell [{first}] ran before {_short(text)} in cell [{other}]: a job runs all of it in the folder of "
                "now, so that relative paths may lead elsewhere"
            )
            return


def _changes_folder(nodes: Sequence[ast.stmt]) -> bool:
    calls = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "chdir" for call in calls)


def _calls_with_a_text(nodes: Sequence[ast.stmt]) -> bool:
    """Return True if these statements make a call with a string argument, which may open a file by name."""
    if all(isinstance(node, FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom) for node in nodes):
        return False
    calls = [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call)]
    given = [value for each in calls for value in (*each.args, *(keyword.value for keyword in each.keywords))]
    return any(isinstance(value, ast.Constant | ast.JoinedStr) and not _is_number(value) for value in given)


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not isinstance(value.value, str)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
