"""Find the script files that a cell runs, as by `%run train.py`, `!python train.py` or a call of `subprocess.run`."""

from __future__ import annotations

import ast
import re
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
_PROCESSES = frozenset({"run", "call", "check_call", "check_output", "Popen", "system"})


class Script(NamedTuple):
    """Script file that a cell runs, with its arguments."""

    line: int
    command: str
    file: str

    @property
    def arguments(self) -> str:
        """Return the script's file and arguments as written: `train.py --epochs 3`."""
        _, file, rest = self.command.partition(self.file)
        return f"{file}{rest}".strip() if not self.command.endswith(")") else self.file

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
            yield Script(number, command, found["file"])
    for node in (each for statement in own for each in ast.walk(statement)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PROCESSES:
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            words = " ".join(each for each in texts if isinstance(each, str))
            if found := re.search(r"(?P<file>[\w./~-]+\.py)\b", words):
                yield Script(node.lineno, ast.unparse(node), found["file"])
