"""Capture a shell command: its program as the training definition, with the files and modules that it needs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from jupyter_ext.capture import Capture, Problem, capture_file
from jupyter_ext.project import place_of
from jupyter_ext.project.modules import Modules, is_third_party
from kernel_backend.definition.command.programs import Program, program_of
from kernel_backend.definition.command_line import MARK, PYTHON, Command, joined, marked
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.snapshot import Piece
from kernel_backend.model.values import nearest

# For a command without a Python file.
_PIECES: tuple[Piece, ...] = (Piece(cell=None, file="the command", line=1, count=1, cell_line=1),)
NAMED_LIMIT = 1_000_000  # bytes of a file that is included because the command names it


def capture_command(words: Sequence[str], own_process: str | None = None) -> tuple[Capture, Path]:
    """Return the capture of a shell command, and the file in whose folder its modules are searched.

    The file may not exist. A Python program normally runs within the process of a rank; `own_process` is the reason, if
    an option gives one, why it must run in a process of its own. Raises InvalidRequest for a command that names no
    program.
    """
    problems: list[Problem] = []
    program, interpreter = _interpreted(_with_main(program_of(words)), problems)
    file, module = None, ""
    if program.kind == "module" and program.at is not None:
        module = program.words[program.at]
        file = _module_file(module, interpreter)
    elif program.at is not None:
        file = _program_file(program, problems)
    source, pieces, below = "", _PIECES, None
    if file is not None:
        place = place_of(Path.cwd()) if module else place_of(file.parent, Path.cwd())
        below = place.below(file)
    why = program.own_process
    if why is None:
        why = own_process or (None if below is not None else f"{module} is no module of the project")
    command = Command(
        words=program.words,
        at=None if module or file is None else program.at,
        program=below,
        module=program.kind == "module",
        taken=why is None,
        why=why or "",
    )
    if file is not None and program.kind in ("python", "module"):
        text = capture_file(file)
        source, pieces = text.source, text.pieces
    capture = Capture(
        source=marked(source, command),
        pieces=pieces,
        roles_from=1,
        warnings=tuple(_warnings(program, interpreter)),
        problems=tuple(problems),
        carried=tuple(map(str, _carried(program, file))),
        modules=(module,) if file is not None and module else (),
        interpreter=interpreter,
    )
    return capture, file if file is not None and not module else Path.cwd() / MARK


def _with_main(program: Program) -> Program:
    """Replace a folder that Python is to run, as in `python pkg`, by its `__main__.py`."""
    if program.kind != "python" or program.at is None:
        return program
    main = Path(program.words[program.at]) / "__main__.py"
    before, after = program.words[: program.at], program.words[program.at + 1 :]
    return program._replace(words=(*before, str(main), *after)) if main.expanduser().is_file() else program


def _interpreted(program: Program, problems: list[Problem]) -> tuple[Program, str]:
    """Find the Python that runs a program; return the program with the path to it in the command, and this path.

    The path is "" if it is the Python of this process, or if the program is not run by Python. If the interpreter does
    not exist, a problem is added to `problems`.
    """
    word = program.words[0]
    if program.kind not in ("python", "module") or word == PYTHON:
        return program, ""
    path = Path(word if "/" in word else shutil.which(word) or word).expanduser()
    if not path.is_file() or not os.access(path, os.X_OK):
        _add(problems, word, f"there is no Python {word}: name another, or write python for this one")
    # A link is not followed: an environment's Python is a link to the one that it was made by.
    own = os.path.abspath(path) == os.path.abspath(sys.executable)
    word = PYTHON if own else str(path) if "/" in str(path) else f"./{path}"
    return program._replace(words=(word, *program.words[1:])), "" if own else word


def _program_file(program: Program, problems: list[Problem]) -> Path | None:
    """Return the program's file if it belongs to the user, else None; add problems if the program cannot run."""
    assert program.at is not None
    word = program.words[program.at]
    path = Path(word).expanduser()
    if program.kind == "executable" and "/" not in word:
        if shutil.which(word) is None:
            hint = f": write ./{word}" if path.is_file() else ""
            _add(problems, word, f"there is no program {word} in PATH{hint}")
        return None
    if not path.is_file():
        what = "is a folder, and no program" if path.is_dir() else f"is not there{_similar(path)}"
        _add(problems, word, f"{word} {what}: it is looked for in {Path.cwd()}")
        return None
    if program.kind == "executable" and not os.access(path, os.X_OK):
        _add(problems, word, f"{word} is not executable: chmod +x {word}, or name its interpreter: bash {word}")
    if program.kind == "executable" and not _is_own(path):
        return None
    return path.absolute()


def _is_own(path: Path) -> bool:
    """Return True if a program is a file of the user's project and not an installed one."""
    return place_of(Path.cwd()).below(path) is not None and not path.is_symlink()


def _module_file(name: str, interpreter: str) -> Path | None:
    """Return the file of the project that `python -m NAME` would run.

    None if the module is installed, or if another `interpreter` is used and the module is not found here. Raises
    InvalidRequest if there is no such module.
    """
    modules = Modules([Path.cwd()])
    top, found = modules.find(name.split(".")[0]), modules.find(name)
    if found is None or top is None:
        if interpreter:
            return None
        raise InvalidRequest(f"python -m {name}: there is no module {name} in {Path.cwd()}, or in this Python")
    if is_third_party(top):
        return None
    if found.folders:
        main = modules.find(f"{name}.__main__")
        if main is None:
            raise InvalidRequest(f"python -m {name}: the package {name} has no __main__.py: name the module to run")
        return main.file
    return found.file


def _carried(program: Program, file: Path | None) -> Iterator[Path]:
    """Yield the files that the snapshot includes for a command: its program, and small project files that it names."""
    if file is not None:
        yield file
    place = place_of(file.parent if file is not None else Path.cwd(), Path.cwd())
    for word in program.words[1:]:
        path = Path(word.rpartition("=")[2] or word)
        try:
            small = path.is_file() and path.stat().st_size <= NAMED_LIMIT
        except (OSError, ValueError):  # too long for a file name
            continue
        if small and place.below(path) is not None and path.absolute() != file:
            yield path.absolute()


def _warnings(program: Program, interpreter: str) -> Iterator[str]:
    if program.dropped:
        own = joined(program.dropped)
        yield f"{own} is left out: Daylight starts the ranks itself, one for each of --slots, with the same variables"
    if interpreter:
        yield f"the packages of {interpreter} are neither checked nor recorded: the environment shown is this Python's"
    if program.kind == "shell" and program.at is not None:
        word = program.words[program.at]
        yield f"what {word} starts is read from the working folder as it is then: --include records such files"


def _add(problems: list[Problem], name: str, message: str) -> None:
    problems.append(Problem("command", name, None, message))


def _similar(path: Path) -> str:
    try:
        return nearest(path.name, (each.name for each in path.parent.iterdir()))
    except OSError:
        return ""
