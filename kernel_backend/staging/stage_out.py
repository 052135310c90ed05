"""Send the files of an attempt's folder that the service needs, while the ranks run and after their end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kernel_backend.errors import DaylightError, Fenced
from kernel_backend.launch.spool_uploader import DELIVERY_S
from kernel_backend.model.launch.staging import PIECE, is_end, is_log, is_staged

PERIOD_S = 0.25  # between scans of the folder
RETRY_S = 1.0  # before a retry after the service could not be reached

# Function that sends a piece of the named file at an offset, and returns the file's size at the service.
Send = Callable[[str, int, bytes], int]
_log = logging.getLogger(__name__)


class FileState(NamedTuple):
    """State by which a change of a file is detected: its size and, except for logs, its inode and time."""

    size: int
    version: tuple[int, int] = (0, 0)  # inode and time of the last change; zeros for a log


def due(found: Mapping[str, FileState], sent: Mapping[str, FileState], ending: bool) -> list[str]:
    """Return the names of files to send now: those that changed since they were sent.

    Records of the ranks' end are left out until `ending` is set, and then come last, after all other files.

    Examples
    --------
    >>> found = {"end.json": FileState(9, (1, 1)), "rank-0.log": FileState(5), "rank-1.log": FileState(3)}
    >>> due(found, {"rank-1.log": FileState(3)}, ending=False)
    ['rank-0.log']
    >>> due(found, {"rank-1.log": FileState(3)}, ending=True)
    ['rank-0.log', 'end.json']
    """
    new = [name for name, state in found.items() if sent.get(name) != state and state.size > 0]
    return sorted((name for name in new if ending or not is_end(name)), key=lambda name: (is_end(name), name))


class StageOut(threading.Thread):
    """Thread that sends the files of an attempt to the service: logs in pieces, and records as a whole.

    All requests can be repeated, and are retried.
    """

    def __init__(self, folder: Path, send: Send) -> None:
        super().__init__(name="stage out", daemon=True)
        self._folder, self._send = folder, send
        self._sent: dict[str, FileState] = {}
        self._refused: set[str] = set()  # files that the service refuses for good
        self._ending = threading.Event()
        self.over = ""  # why the service accepts no more files; "" while it does
        self.delivered = False  # whether all files have been accepted or refused

    def finish(self) -> bool:
        """Send the remaining files for up to `DELIVERY_S`; return whether the service has all of them."""
        self._ending.set()
        self.join(DELIVERY_S)
        return self.delivered

    def run(self) -> None:
        """Send changed files until `finish` is called and all are sent, or until the service accepts no more."""
        while True:
            ending = self._ending.is_set()  # checked before the scan, which is then complete
            try:
                self._pass(ending)
                self.delivered = ending
            except Fenced as error:
                self.over, self.delivered = error.message, True
            except Exception as error:  # any error: the ranks continue, and sending is tried again
                expected = isinstance(error, DaylightError)
                _log.info("files cannot be sent now: %s", error, exc_info=None if expected else error)
                time.sleep(RETRY_S)
            if self.over or self.delivered:
                return
            self._ending.wait(PERIOD_S)

    def _pass(self, ending: bool) -> None:
        for name in due(self._found(), self._sent, ending):
            try:
                self._send_log(name) if is_log(name) else self._send_record(name)
            except Fenced:
                raise
            except DaylightError as error:
                if error.http_status >= 500:
                    raise
                self._refused.add(name)
                _log.warning("the service refuses %s: %s", name, error)

    def _found(self) -> dict[str, FileState]:
        return dict(_states(self._folder.iterdir(), self._refused))

    def _send_record(self, name: str) -> None:
        path = self._folder / name
        state = _state(path)
        self._send(name, 0, path.read_bytes())
        self._sent[name] = state

    def _send_log(self, name: str) -> None:
        """Send the part of a log that the service does not have yet."""
        offset = self._sent.get(name, FileState(0)).size
        with (self._folder / name).open("rb") as file:
            while True:
                file.seek(offset)
                piece = file.read(PIECE)
                if not piece:
                    return
                offset = self._send(name, offset, piece)  # smaller than expected if the service has lost data
                self._sent[name] = FileState(offset)


def _states(paths: Iterable[Path], but: set[str]) -> Iterable[tuple[str, FileState]]:
    for path in paths:
        if is_staged(path.name) and path.name not in but:
            yield path.name, _state(path)


def _state(path: Path) -> FileState:
    status = path.stat()
    return FileState(status.st_size, (0, 0) if is_log(path.name) else (status.st_ino, status.st_mtime_ns))
