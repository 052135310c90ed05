"""Describe the failure of a program, from its exit code and the last exception in its log."""

from __future__ import annotations

import re
import time
from pathlib import Path

from kernel_backend.definition.reported.tracebacks import BEGIN, OF_RANK
from kernel_backend.model.frames import Call, Sources, users_frame
from kernel_backend.model.trial import PROGRAM_FAILED, USAGE_ERROR, Failure
from kernel_backend.runner.failure import LONGEST_MESSAGE, is_lost_peer
from kernel_backend.runner.program_end import end_of, signal_of, usage_error

_SHOWN = 300  # characters shown of its last line
_CALL = re.compile(r'^\s+File "(.*)", line (\d+), in (.*)$')
_LAUNCHERS = "ChildFailedError"  # torchrun's error, after that of the child
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?(.*))?$", re.DOTALL)
_HINTS = {
    "EOFError": "a job has no keyboard: give the program its input as an option or a file",
    "ModuleNotFoundError": "install it in the job's Python; --include takes a module of the project along",
}


def program_failure(code: int, log: Path, rank: int, step: int | None, command: str, sources: Sources) -> Failure:
    """Return the failure of a program of this `rank` that ended with the exit code `code`, negative for a signal.

    If its log ends with a traceback, the failure is that exception, with the lines of the user's code, which `sources`
    finds. If a shell reports that its command was killed by a signal, that signal is the cause. `step` is the step in
    which the program failed, None if unknown; `command` is the command line, for the message.
    """
    text = end_of(log)
    refusal = usage_error(code, text)
    if refusal is not None:
        return Failure(rank=rank, type=USAGE_ERROR, message=refusal[:LONGEST_MESSAGE], step=step, at=time.time())
    raised = _raised(text) if code > 0 else None
    if raised is None:
        lines = [line for line in text.splitlines() if line.strip()]
        last = f"; its last line: {lines[-1].strip()[:_SHOWN]}" if lines else "; it printed nothing"
        kind = signal_of(code)
        how = f"was killed by {kind}" if code < 0 else f"ended with exit code {code}{f' ({kind})' if kind else ''}"
        return Failure(
            rank=rank,
            type=kind or PROGRAM_FAILED,
            message=f"{command[:_SHOWN]} {how}{last}",
            step=step,
            consequence=is_lost_peer(kind or PROGRAM_FAILED, text[-4096:]),
            at=time.time(),
        )
    kind, message, block = raised
    hint = _HINTS.get(kind)
    if kind == "FileNotFoundError" and str(sources.code) in message:
        hint = "files beside the program travel where --include names them"
    calls = [
        Call(found[1], int(found[2]), found[3], _source_line(block, index))
        for index, line in enumerate(block)
        if (found := _CALL.match(line))
    ]
    return Failure(
        rank=rank,
        type=kind,
        message=(f"{message} ({hint})" if hint else message)[:LONGEST_MESSAGE],
        step=step,
        frames=tuple(frame for call in calls if (frame := users_frame(call, sources))),
        traceback="\n".join(block),
        consequence=is_lost_peer(kind, message),
        invalid=kind == "InvalidHyperparameters",
        at=time.time(),
    )


def _raised(text: str) -> tuple[str, str, list[str]] | None:
    """Return the class, message and lines of the last Python traceback in a text; None if there is none."""
    text = OF_RANK.sub("", text)
    begin = text.rfind(BEGIN)
    if begin < 0:
        return None
    raised = _error_in(text[begin:])
    if raised is None or raised[0] != _LAUNCHERS:
        return raised
    return _raised(text[:begin]) or raised


def _error_in(text: str) -> tuple[str, str, list[str]] | None:
    """Return the class, message and lines of the traceback with which a text begins."""
    lines = text.splitlines()
    for index, line in enumerate(lines[1:], start=1):
        if line and not line[0].isspace():
            found = _ERROR.match(line)
            if found is None:
                return None
            message = found[2] or next((each.strip() for each in lines[index + 1 :] if re.search(r"\w", each)), "")
            return found[1].rpartition(".")[2], message, lines[: index + 1]
    return None


def _source_line(block: list[str], index: int) -> str:
    follows = block[index + 1 : index + 2]
    return follows[0].strip() if follows and not _CALL.match(follows[0]) else ""
