"""Search the logs of ranks for lines that match a log policy: a pattern of the user, and what to do if it occurs."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence

from kernel_backend import time_limit
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import LogPolicy
from kernel_backend.model.reports import LogMatch
from kernel_backend.tail import Tail
from kernel_backend.time_limit import TookTooLong, processor_time

BEHIND = 4 * 2**20  # bytes by which the search may lag behind; older lines are then skipped, as the end matters most
SHOWN = 200  # characters of a line in a record

_log = logging.getLogger(__name__)


class LogWatch:
    """Search of the growing logs of a node's ranks for lines that match a log policy, a pattern that the user has set.

    So that the launcher is not delayed, each call reads only a limited part, and a pattern that takes seconds for it is
    given up.
    """

    def __init__(self, folder: AttemptFolder, ranks: Collection[int], policies: Sequence[LogPolicy]) -> None:
        self._patterns = list(_compiled(policies))
        self._lines = {rank: Tail(folder.rank_log(rank), BEHIND) for rank in ranks} if self._patterns else {}
        self._found: dict[tuple[int, str], LogMatch] = {}

    def look(self) -> None:
        """Search the lines that the ranks have written since the last call."""
        for rank, lines in self._lines.items():
            self._search(rank, lines.new())

    def finish(self) -> tuple[LogMatch, ...]:
        """Search the rest of the logs, as the ranks have ended; return the first match of each policy in each log."""
        for rank, lines in self._lines.items():
            self._search(rank, lines.new(BEHIND))
            self._search(rank, lines.rest())
        return tuple(self._found.values())

    def _search(self, rank: int, lines: Iterator[str]) -> None:
        wanted = [each for each in self._patterns if (rank, each[1].pattern) not in self._found]
        written = list(lines)
        for pattern, policy in wanted:
            try:
                with processor_time(time_limit.PATTERN_S):
                    line = next(filter(pattern.search, written), None)
            except TookTooLong:
                self._patterns.remove((pattern, policy))
                _log.warning("%r takes too long to be searched for, and is not looked for any more", policy.pattern)
                continue
            if line is not None:
                self._found[rank, policy.pattern] = _match(policy, rank, line)


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
