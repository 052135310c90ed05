"""Attribute warnings to the user's lines, as in plain Python, where functions of ours stand between."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_OURS = f"{Path(__file__).parents[1]}/"


def warn_of_users_lines() -> None:
    """Patch `warnings` for the rest of this process: `stacklevel` counts no frames of ours, and none is shown.

    A warning that C code raises in a function of ours, which knows no `stacklevel`, is shown with its caller's line.
    """
    warn: Any = warnings.warn
    show = warnings.showwarning

    def counted(
        message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **options: Any
    ) -> None:  # `options` has `skip_file_prefixes` from Python 3.12 on
        if prefixes := options.get("skip_file_prefixes"):
            warn(message, category, stacklevel, source, skip_file_prefixes=(*prefixes, _OURS))
        else:
            warn(message, category, _level(sys._getframe(1), stacklevel) + 1, source)

    def shown(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **named: Any) -> None:
        place = filename, lineno
        if filename.startswith(_OURS):
            place = _users_place(sys._getframe(1)) or place
        show(message, category, *place, *rest, **named)

    warnings.warn, warnings.showwarning = counted, shown


def _level(caller: FrameType, wanted: int) -> int:
    """Return the `stacklevel` at which `caller` has to warn, so that frames of ours do not count in `wanted`.

    With fewer frames than that, it is the level of the outermost one which is not ours.
    """
    level = 1
    for number, frame in enumerate(_frames(caller), 1):
        if number == 1 or not _is_ours(frame):
            level, wanted = number, wanted - 1
        if wanted <= 0:
            break
    return level


def _users_place(frame: FrameType) -> tuple[str, int] | None:
    """Return file and line of the innermost frame that is not ours, nor of the module `warnings`; None without one."""
    others = (each for each in _frames(frame) if not _is_ours(each) and each.f_globals is not vars(warnings))
    found = next(others, None)
    return None if found is None else (found.f_code.co_filename, found.f_lineno)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers, without the frames of imports, which `stacklevel` does not count either."""
    while frame is not None:
        if "importlib" not in frame.f_code.co_filename or "_bootstrap" not in frame.f_code.co_filename:
            yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    """Return True for a function of ours, and for the code of Python that starts a process."""
    return frame.f_code.co_filename.startswith((_OURS, "<frozen"))
