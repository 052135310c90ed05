"""Which files this process and its loader workers have opened for reading, as Python tells of it (PEP 578).

A hook cannot be taken away again, so it does next to nothing. What a library opens by code in C or Rust goes unseen;
safetensors is common enough to be made to tell.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MOST = 20_000  # files that a process remembers; it may go on to read millions

Keep = Callable[[str], bool]

_opened: dict[str, None] = {}
_written: set[str] = set()  # temporary files that were made here
_fresh: list[str] = []
_temporary = os.path.join(tempfile.gettempdir(), "")
_keep: Keep | None = None  # None: nobody listens
_hooked = False


def watch(keep: Keep) -> None:
    """Listen from now on to files that `keep` says count; processes that are forked from this one do, too."""
    global _keep, _hooked
    _keep = keep
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hear)
        _have_safetensors_tell()


def stop() -> None:
    """Listen no more, and forget."""
    global _keep
    _keep = None
    for each in (_opened, _written, _fresh):
        each.clear()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What is opened meanwhile counts for nothing."""
    global _keep
    keep, _keep = _keep, None
    try:
        yield
    finally:
        _keep = keep


def watching() -> Keep | None:
    """What this process listens to, None where it does not."""
    return _keep


def heard() -> list[str]:
    """The files that were opened since this was asked last, by absolute path."""
    found = _fresh[:]
    del _fresh[: len(found)]
    return found


def add(paths: Iterable[str]) -> None:
    """Take in what another process has heard, where this one still listens."""
    for path in paths if _keep is not None else ():
        _remember(path)


def all_opened() -> list[str]:
    """Every file that is known to have been opened for reading, in order."""
    return sorted(_opened)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if (event != "open" and event != "sqlite3.connect") or _keep is None:
        return
    try:
        path = os.path.abspath(os.fsdecode(args[0]))  # not of a number: that file has been opened before
        if path in _opened or path in _written:
            return
        if event == "open" and args[2] & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
            # Other files that are made here, downloads perhaps, will be there when this is run again.
            if path.startswith(_temporary) and len(_written) < MOST:
                _written.add(path)
        elif _keep(path) and path.encode():  # what has a name that is no UTF-8 raises
            _remember(path)
    except Exception:  # whoever opens a file is not to hear of us
        pass


def _remember(path: str) -> None:
    if path not in _opened and len(_opened) < MOST:
        _opened[path] = None
        _fresh.append(path)


def _have_safetensors_tell() -> None:
    """It reads files in Rust: say for it what Python would have said."""
    import safetensors
    import safetensors.torch

    libraries: tuple[Any, ...] = (safetensors, safetensors.torch)
    real: Callable[..., Any] = libraries[0].safe_open

    @functools.wraps(real, updated=())
    def safe_open(filename: Any, *args: Any, **kwargs: Any) -> Any:
        sys.audit("open", filename, "rb", os.O_RDONLY)
        return real(filename, *args, **kwargs)

    for library in libraries:
        library.safe_open = safe_open
