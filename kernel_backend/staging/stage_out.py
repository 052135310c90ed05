"""Send what the service reads of an attempt's folder, while the ranks run and after their end."""

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

PERIOD_S = 0.25  # between looks at the folder
RETRY_S = 1.0  # after the service could not be reached

# Send a piece of a file of this name at an offset; return the size that it has at the service.
Send = Callable[[str, int, bytes], int]
_log = logging.getLogger(__name__)


class FileState(NamedTuple):
    """Size of a file, and what tells a replaced one apart."""

    size: int
    version: tuple[int, int] = (0, 0)  # inode and time of its last change; none for a log


def due(found: Mapping[str, FileState], sent: Mapping[str, FileState], ending: bool) -> list[str]:
    """Return the files that have something new, those that tell the end of the ranks last, and only when `ending`.

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
    """Thread that sends logs in pieces and records whole; every call may be repeated, and nothing is lost meanwhile."""

    def __init__(self, folder: Path, send: Send) -> None:
        super().__init__(name="stage out", daemon=True)
        self._folder, self._send = folder, send
        self._sent: dict[str, FileState] = {}
        self._refused: set[str] = set()  # files that the service refuses for good
        self._ending = threading.Event()
        self.over = ""  # why the service takes no more; "" while it does
        self.delivered = False  # whether all files have been taken or refused

    def finish(self) -> bool:
        """Send the rest, the end of the ranks last, for up to `DELIVERY_S`; return whether the service has it."""
        self._ending.set()
        self.join(DELIVERY_S)
        return self.delivered

    def run(self) -> None:
        """Send what is new until `finish` was called and all has been sent, or the attempt is over."""
        while True:
            ending = self._ending.is_set()  # before the look at the files, which are complete then
            try:
                self._pass(ending)
                self.delivered = ending
            except Fenced as error:
                self.over, self.delivered = error.message, True
            except Exception as error:  # whatever it is: the ranks go on, and it is tried again
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
        """Send a log from where the service has it to its end, as it is now."""
        offset = self._sent.get(name, FileState(0)).size
        with (self._folder / name).open("rb") as file:
            while True:
                file.seek(offset)
                piece = file.read(PIECE)
                if not piece:
                    return
                offset = self._send(name, offset, piece)  # less than expected if the service has lost the rest
                self._sent[name] = FileState(offset)


def _states(paths: Iterable[Path], but: set[str]) -> Iterable[tuple[str, FileState]]:
    for path in paths:
        if is_staged(path.name) and path.name not in but:
            yield path.name, _state(path)


def _state(path: Path) -> FileState:
    status = path.stat()
    return FileState(status.st_size, (0, 0) if is_log(path.name) else (status.st_ino, status.st_mtime_ns))
