"""Submit a Python file or a command (`daylight submit`), as `%%dlsubmit` submits a cell."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jupyter_ext.capture import Capture, capture_file
from jupyter_ext.submit.command import capture_command
from jupyter_ext.submit.dry_run import as_script, dry_run
from jupyter_ext.submit.local import train_locally
from jupyter_ext.submit.submit import check, read, send
from kernel_backend.commands.answer import Answer, Started, Text
from kernel_backend.commands.verb import Call
from kernel_backend.definition.command_line import PYTHON, joined
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition, InvalidRequest
from kernel_backend.text import same_text

_INSTEAD = {  # of a file by its suffix
    ".sh": "write daylight submit -- bash {path}",
    ".ipynb": "write %%dlsubmit in the first line of its cell that trains, or jupyter nbconvert --to script {path}",
}


class Source(NamedTuple):
    """File or command that `daylight submit` submits, with its capture."""

    capture: Capture
    path: Path  # modules next to it are found
    shown: str  # the file
    tail: str = ""  # ` -- python train.py`: the end of the line that submits it


def source_of(options: Namespace, program: Sequence[str] | None) -> Source:
    """Return the captured file or command that the command line of `daylight submit` names.

    A file with a training loop of its own is the command that starts it, so that it has its own path and folder, as
    libraries such as Hydra expect. `program` has the words of the command after `--`; if it is None, the file is taken
    from the positional arguments in `options.words`, and removed there. Raises InvalidRequest if there is no file, or a
    file besides a command.
    """
    if program is None:
        path = _file(options.words)
        program = [PYTHON, str(path)]
        if options.form or options.metric_pattern or not _trains_in_a_loop(program):
            return Source(capture_file(path), path, str(path))
    if others := [word for word in options.words if "=" not in word]:
        raise InvalidRequest(f"{others[0][:500]} stands before --: write the program after it, and name=value before")
    asked = "--form command" if options.form else "--metric-pattern" if options.metric_pattern else None
    capture, path = capture_command(program, asked and f"{asked} asks for it")
    return Source(capture, path, "", f" -- {joined(program)}")


def _trains_in_a_loop(program: Sequence[str]) -> bool:
    try:
        return parse(capture_command(program)[0].source).form == "script"
    except (InvalidDefinition, InvalidRequest):
        return False


def submit(call: Call) -> Answer:
    """Submit the file or command in the arguments, or show it with `--dry-run`; wait for the experiment on request."""
    options = call.arguments
    source = source_of(options, options.program)
    asked = read(options)
    checked = check(
        source.capture,
        asked.given,
        asked.wanted,
        source.path,
        wrong=asked.wrong,
        space=asked.space,
        config=asked.config,
    )
    for warning in checked.warnings:
        call.console.note(warning)
    command = f"{call.command} {source.shown}".rstrip()
    if options.dry_run:
        return Answer(None, [Text([dry_run(checked, asked, command, source.tail)])])
    if options.local:
        train_locally(checked, asked)
        return Answer(None)
    if options.as_script:
        return Answer(None, [Text([as_script(checked, command)])])
    overview, new = send(checked, client=call.client, again=options.again)
    if not new:
        call.console.say(same_text(source.shown or "this command", overview))
    if not call.console.waits(options.wait):
        number = overview.experiment.number
        hint = f"daylight show {number} --follow to watch it, daylight stop {number} to end it"
        return Answer(overview, [Started(call.client, overview, (), "" if options.quiet else hint)])
    ended, code = call.console.wait(call.client, overview, ())
    if ended is None:
        return Answer(None, code=code)
    return Answer(ended, [Started(call.client, ended, ())], code=code)


def _file(words: list[str]) -> Path:
    """Remove the file from the positional arguments `words` and return it.

    The other arguments have the form `name=value`. Raises InvalidRequest unless exactly one existing file is named.
    """
    files = [word for word in words if "=" not in word or _is_file(Path(word))]
    if len(files) != 1:
        found = f"not {len(files)}: {' '.join(files)[:500]}" if files else "which is missing"
        raise InvalidRequest(f"submit takes one file, {found}; write daylight submit FILE.py name=value ...")
    path = Path(files[0])
    if not _is_file(path):
        raise InvalidRequest(f"there is no file {files[0][:500]}")
    if instead := _INSTEAD.get(path.suffix):
        raise InvalidRequest(f"{path} is no Python file: {instead.format(path=path)}")
    words.remove(files[0])
    return path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a file name, or with a NUL
        return False
