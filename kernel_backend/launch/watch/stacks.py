"""Stacks as ranks write them on demand, read: who waits for its peers, and where the others stand. Plain functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernel_backend.model.frames import Call

_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)")
_CALL = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_MAIN = re.compile(r"main thread (0x[0-9a-f]+)")

_RANKS = "/kernel_backend/runner/ranks/backends.py"
_SUMS = "/kernel_backend/runner/gradients/reducer.py"  # waits for a sum without any call further in
_TALK = ("/torch/distributed/", "/horovod/", _RANKS)
_LIBRARIES = ("/site-packages/", "/lib/python3", "/kernel_backend/")


def main_stack(text: str) -> list[Call]:
    """The main thread's stack in what a rank wrote, innermost call first; empty where it wrote none."""
    named = _MAIN.search(text)
    main = int(named[1], 16) if named else None
    found: list[Call] = []
    here = False
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            here = main is None or int(thread[1], 16) == main
            found = [] if here else found  # an older dump of it counts no more
        elif here and (call := _CALL.match(line)):
            found.append(Call(call[1], int(call[2]), call[3]))
    return found


def waits_for_peers(stack: Sequence[Call]) -> bool:
    """Whether a rank with this stack talks to the others, and is not in code of the user's that it was led to."""
    if stack and stack[0].file.endswith(_SUMS):
        return True
    for call in stack:
        if any(part in call.file for part in _TALK):
            return True
        if not any(part in call.file for part in _LIBRARIES):
            return False
    return False


def in_step_with_others(stack: Sequence[Call]) -> bool:
    """Whether a rank that waits for its peers does so at a place of ours, where every rank comes by."""
    return any(call.file.endswith((_RANKS, _SUMS)) for call in stack)


def shortened(text: str, most: int) -> str:
    """The stacks without the line that is for us, at most so many characters: the last threads, whole lines."""
    text = _MAIN.sub("", text, count=1).strip()
    if len(text) <= most:
        return text
    cut = text[-most:]
    return "...\n" + cut[cut.find("\n") + 1 :]
