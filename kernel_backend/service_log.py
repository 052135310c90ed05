"""Limit the size of the service's log, so that clients cannot fill a disk by causing messages."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
from pathlib import Path
from typing import TextIO

LIMIT = 5_000_000  # bytes of service.log; older lines stay in service.log.1
OFTEN = 20  # warnings of one kind per period
PERIOD_S = 60.0  # the period
KINDS = 1000  # kinds of warnings that are tracked


class Seldom(logging.Filter):
    """Log filter that limits how often each kind of warning (logger and message template) is logged.

    The number of suppressed messages is added to the next one of the kind. All messages of tornado are treated as
    warnings, since clients cause them.
    """

    def __init__(self, often: int = OFTEN, period_s: float = PERIOD_S) -> None:
        super().__init__()
        self._often, self._period_s = often, period_s
        self._said: dict[tuple[str, str], tuple[float, int]] = {}  # start of the period and count, by kind

    def __len__(self) -> int:
        """Return the number of kinds of messages that are being counted."""
        return len(self._said)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a warning whose message was logged too often in the present period, else True."""
        if record.levelno < logging.WARNING and not record.name.startswith("tornado"):
            return True
        key, now = (record.name, str(record.msg)), time.monotonic()
        since, count = self._said.get(key, (now, 0))
        if now - since > self._period_s:
            if count > self._often:
                record.msg = f"{record.msg} (and {count - self._often:,} times more in the last {now - since:.0f} s)"
            since, count = now, 0
        if len(self._said) >= KINDS and key not in self._said:
            self._said = {each: said for each, said in self._said.items() if now - said[0] <= self._period_s}
            if len(self._said) >= KINDS:
                self._said.clear()
        self._said[key] = since, count + 1
        return count < self._often


class ServiceLog(logging.StreamHandler[TextIO]):
    """Log handler that truncates the log file at `path` when it has become large."""

    def __init__(self, stream: TextIO, path: Path, limit: int = LIMIT) -> None:
        super().__init__(stream)
        self._path, self._limit = path, limit
        self.addFilter(Seldom())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log line; if the file has become too large, copy it to `.1` and truncate it."""
        super().emit(record)
        try:
            self._rotate()
        except (OSError, ValueError):  # a full disk, or the log is no file
            return

    def _rotate(self) -> None:
        descriptor = self.stream.fileno()
        ours = os.fstat(descriptor)
        if ours.st_size <= self._limit or not os.path.samestat(ours, os.stat(self._path)):
            return
        # Other code writes to the same descriptor (a traceback at the end): the file must stay, and their text is
        # appended, as the file is opened for appending.
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            before = self._path.with_name(f"{self._path.name}.1")
            shutil.copyfile(self._path, before)
            before.chmod(0o600)
            os.ftruncate(descriptor, 0)
