"""Parse the stack traces that ranks write on request, and find out which ranks wait for others: pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernel_backend.model.frames import Call

_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)")
_CALL = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_MAIN = re.compile(r"main thread (0x[0-9a-f]+)")

_RANKS = ("/kernel_backend/runner/ranks/backends.py", "/kernel_backend/runner/ranks/timed.py")
_SUMS = "/kernel_backend/runner/gradients/reducer.py"  # its lines wait for an all-reduce without calling other code
_TALK = ("/torch/distributed/", "/horovod/", *_RANKS)
_LIBRARIES = ("/site-packages/", "/lib/python3", "/kernel_backend/")


def main_stack(text: str) -> list[Call]:
    """Return the calls on the main thread's stack, the innermost first; [] if there is no stack trace in the text."""
    named = _MAIN.search(text)
    main = int(named[1], 16) if named else None
    found: list[Call] = []
    here = False
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            here = main is None or int(thread[1], 16) == main
            found = [] if here else found  # discard an earlier dump
        elif here and (call := _CALL.match(line)):
            found.append(Call(call[1], int(call[2]), call[3]))
    return found


def waits_for_peers(stack: Sequence[Call]) -> bool:
    """Return True if the rank waits in communication with other ranks, not in code of the user.

    The innermost call decides that is either in a communication library or in the user's code.
    """
    if stack and stack[0].file.endswith(_SUMS):
        return True
    for call in stack:
        if any(part in call.file for part in _TALK):
            return True
        if not any(part in call.file for part in _LIBRARIES):
            return False
    return False


def in_step_with_others(stack: Sequence[Call]) -> bool:
    """Return True if the rank waits in Daylight's own communication, which every other rank sooner or later joins."""
    return any(call.file.endswith((*_RANKS, _SUMS)) for call in stack)


def shortened(text: str, most: int) -> str:
    """Return the last lines of the stack traces, at most `most` characters, with `...` in front if lines were left out.

    The text `main thread 0x...`, by which a rank marks its main thread, is removed.
    """
    text = _MAIN.sub("", text, count=1).strip()
    if len(text) <= most:
        return text
    cut = text[-most:]
    return "...\n" + cut[cut.find("\n") + 1 :]
