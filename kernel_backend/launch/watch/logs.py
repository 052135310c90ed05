"""Search ranks' logs for the first line of each that matches a policy."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import LogPolicy
from kernel_backend.model.reports import LogMatch

PIECE = 256 * 1024  # bytes of a log read at once
BEHIND = 4 * 2**20  # a log that grows further ahead is skipped up to here: its end matters most
LONGEST = 2000  # bytes of a line that are searched: a pattern may take long on more
SHOWN = 200  # characters of a line in a record

_log = logging.getLogger(__name__)


class LogWatch:
    """Search of a gang's growing logs for lines that match a policy, a bounded piece at a time."""

    def __init__(self, folder: AttemptFolder, ranks: int, policies: Sequence[LogPolicy]) -> None:
        self._patterns = list(_compiled(policies))
        self._lines = {rank: _Lines(folder.rank_log(rank)) for rank in range(ranks)} if self._patterns else {}
        self._found: dict[tuple[int, str], LogMatch] = {}

    def look(self) -> None:
        """Search the lines written since the last call."""
        for rank, lines in self._lines.items():
            self._search(rank, lines.new(PIECE))

    def finish(self) -> tuple[LogMatch, ...]:
        """Search the rest after the ranks have ended; return the first match per policy and rank."""
        for rank, lines in self._lines.items():
            self._search(rank, lines.new(BEHIND))
            self._search(rank, lines.rest())
        return tuple(self._found.values())

    def _search(self, rank: int, lines: Iterator[str]) -> None:
        wanted = [each for each in self._patterns if (rank, each[1].pattern) not in self._found]
        for line in lines:
            for pattern, policy in wanted:
                if pattern.search(line):
                    self._found.setdefault((rank, policy.pattern), _match(policy, rank, line))


class _Lines:
    """Log read incrementally by line; an incomplete line waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._begun = b""

    def new(self, most: int) -> Iterator[str]:
        """Return the lines within the next `most` bytes."""
        # A progress bar ends its lines with a carriage return.
        *lines, begun = (self._begun + self._read(most)).replace(b"\r", b"\n").split(b"\n")
        self._begun = begun[:LONGEST]
        return (_text(line) for line in lines)

    def rest(self) -> Iterator[str]:
        """Return the last line, if it does not end in a line break."""
        return iter([_text(self._begun)])

    def _read(self, most: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                self._offset = max(self._offset, file.seek(0, 2) - BEHIND)
                file.seek(self._offset)
                data = file.read(most)
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data


def _compiled(policies: Sequence[LogPolicy]) -> Iterator[tuple[re.Pattern[str], LogPolicy]]:
    for policy in policies:
        try:
            yield re.compile(policy.pattern), policy
        except re.error as error:
            _log.warning("%r is no regular expression, and is not looked for: %s", policy.pattern, error)


def _match(policy: LogPolicy, rank: int, line: str) -> LogMatch:
    line = line.strip()
    shown = line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."
    return LogMatch(pattern=policy.pattern, action=policy.action, rank=rank, line=shown)


def _text(line: bytes) -> str:
    return line[:LONGEST].decode(errors="replace")
