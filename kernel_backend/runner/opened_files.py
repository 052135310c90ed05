"""Record the files that this process and its loader workers open, by an audit hook (PEP 578).

A hook cannot be removed, so it does as little as possible. Files that a library opens in C or Rust code are missed,
but for the libraries in `native_opens`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernel_backend.runner import native_opens

MOST = 20_000  # limit of recorded files, as a process may read millions

Keep = Callable[[str], bool]

_opened: dict[str, None] = {}
_written: set[str] = set()  # temporary files that this process created
_fresh: list[str] = []
_made: dict[str, None] = {}  # other files opened for writing, since they were last returned
_temporary = os.path.join(tempfile.gettempdir(), "")
_working = os.sep  # the working folder, which may itself be in a temporary folder
_keep: Keep | None = None  # None: nothing is recorded
_hooked = False


def watch(keep: Keep) -> None:
    """Start recording the files that this process, and those forked from it later, open.

    Only paths for which `keep` returns True are recorded.
    """
    global _keep, _hooked, _working
    _keep, _working = keep, os.path.join(os.getcwd(), "")
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hear)
        native_opens.tell()


def stop() -> None:
    """Stop recording, and discard the records."""
    global _keep
    _keep = None
    for each in (_opened, _written, _fresh, _made):
        each.clear()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Suspend the recording of opened files during the `with` block."""
    global _keep
    keep, _keep = _keep, None
    try:
        yield
    finally:
        _keep = keep


def watching() -> Keep | None:
    """Return the filter passed to `watch`; None if nothing is recorded."""
    return _keep


def heard() -> list[str]:
    """Return the absolute paths of the files that were opened for the first time since the last call."""
    found = _fresh[:]
    del _fresh[: len(found)]
    return found


def made() -> list[str]:
    """Return the absolute paths of files opened for writing since the last call, except temporary files."""
    found = list(_made)
    _made.clear()
    return found


def add(paths: Iterable[str]) -> None:
    """Add paths that another process, such as a loader worker, has recorded.

    They are ignored if this process records nothing.
    """
    for path in paths if _keep is not None else ():
        _remember(path)


def all_opened() -> list[str]:
    """Return the paths of all files recorded since `watch` was called, sorted."""
    return sorted(_opened)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if (event != "open" and event != "sqlite3.connect") or _keep is None:
        return
    try:
        path = os.path.abspath(os.fsdecode(args[0]))  # raises for a file descriptor, whose file was recorded before
        if path in _opened or path in _written:
            return
        if event == "open" and args[2] & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
            # Other files created here, such as downloads, will exist when this is run again.
            if path.startswith(_temporary) and not path.startswith(_working):
                if len(_written) < MOST:
                    _written.add(path)
            elif len(_made) < MOST and _keep(path) and path.encode():
                _made[path] = None
        elif _keep(path) and path.encode():  # encode() raises for names that are not UTF-8
            _remember(path)
    except Exception:  # an error here must not reach the code that opens a file
        pass


def _remember(path: str) -> None:
    if path not in _opened and len(_opened) < MOST:
        _opened[path] = None
        _fresh.append(path)
