"""Find the script files that a cell runs, as by `%run train.py`, `!python train.py` or a call of `subprocess.run`."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_backend.model.syntax import source_text

LONGEST = 1_000_000  # maximum length of a script
# A magic as capture writes it into the module: `# !python train.py`.
_MAGIC = re.compile(r"^\s*(?:pass  )?# ([%!].*)$")
_SHELLS = re.compile(r"%%(?:bash|sh|script)\b")
_STARTS = re.compile(
    r"(?:^|[\s!/])(?:%run|python[\d.]*|torchrun|deepspeed|ipython|(?:accelerate|horovodrun|mpirun|srun)\b.*?)\s"
    r"(?:.*?\s)??(?P<file>[\w./~-]+\.py)\b"
)
_PROCESSES = frozenset({"run", "call", "check_call", "check_output", "Popen", "system", "run_path", "exec", "execfile"})
_FILE = re.compile(r"(?P<file>[\w./~-]+\.py)\b")


class Script(NamedTuple):
    """Script file that a cell runs, with its arguments."""

    line: int
    command: str
    file: str
    arguments: str  # the file and what follows it: `train.py --epochs 3`

    def source(self) -> str | None:
        """Return the text of the script; None if it cannot be read or is too long."""
        try:
            text = source_text(Path(self.file).expanduser().read_bytes())
        except (OSError, ValueError, SyntaxError, RuntimeError):
            return None
        return text if len(text) <= LONGEST else None


def scripts(source: str, roles_from: int, own: Sequence[ast.stmt]) -> Iterator[Script]:
    """Yield the Python files that a cell runs, by magics or by calls such as `subprocess.run`.

    `source` is the captured module, in which the submitted cell begins at line `roles_from`; `own` has the statements
    of this cell.
    """
    in_shell = False
    for number, line in enumerate(source.splitlines()[roles_from - 1 :], start=roles_from):
        magic = _MAGIC.match(line)
        in_shell = in_shell or (magic is not None and _SHELLS.match(magic[1]) is not None)
        command = magic[1] if magic else line.removeprefix("# ") if in_shell else ""
        if found := _STARTS.search(command):
            yield Script(number, command, found["file"], command[found.start("file") :].strip())
    for node in (each for statement in own for each in ast.walk(statement)):
        name = node.func if isinstance(node, ast.Call) else None
        called = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
        if isinstance(node, ast.Call) and called in _PROCESSES:
            yield from _started(node)


def _started(call: ast.Call) -> Iterator[Script]:
    """Yield the Python file that a call such as `subprocess.run(["python", "train.py", "--lr", rate])` starts.

    Arguments that are no constants are written as `...`.
    """
    named = (each.value for each in call.keywords if each.arg == "args")
    first = call.args[0] if call.args else next(named, None)
    parts = list(first.elts) if isinstance(first, ast.List | ast.Tuple) else [first] if first is not None else []
    for index, part in enumerate(parts):
        texts = [each.value for each in ast.walk(part) if isinstance(each, ast.Constant)]
        found = next(filter(None, (_FILE.search(each) for each in texts if isinstance(each, str))), None)
        if found is not None:
            words = [str(each.value) if isinstance(each, ast.Constant) else "..." for each in parts[index + 1 :]]
            line = found.string[found.start() :] if isinstance(part, ast.Constant) else found["file"]
            yield Script(call.lineno, ast.unparse(call), found["file"], " ".join([line, *map(_quoted, words)]))
            return


def _quoted(word: str) -> str:
    return word if word == "..." else shlex.quote(word)
