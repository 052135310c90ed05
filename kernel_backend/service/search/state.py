"""Hold the state of a search: its searcher, rebuilt from the log, and whether the search is closed or has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_backend.model.search.records import Closed, Complete, Exited, Extended, Failed, LogEntry, Prune, Reported
from kernel_backend.search.base import Searcher
from kernel_backend.search.custom import Custom
from kernel_backend.service.search.custom_process import ClosableProcess


@dataclass
class SearchState:
    """State of a search after the first `entries` entries of its log have been processed.

    `heard` is the sequence number of the last report of a trial that the searcher has processed.
    """

    searcher: Searcher
    entries: int = 0
    heard: int = 0
    ended: set[int] = field(default_factory=set)  # trials that have ended for the searcher
    looked: int = 0  # number of ended trials at the last comparison with the store
    closed: bool = False
    failed: str | None = None  # the failure of the search class or of `prepare` that ended the search
    process: ClosableProcess | None = None
    read: int | None = None  # the newest change in the store when the training that it follows was read

    def take(self, entry: LogEntry) -> None:
        """Update the state, except the searcher, by a log entry; the searcher has processed its event already."""
        self.entries = entry.number
        if isinstance(entry.event, Reported):
            self.heard = max(self.heard, entry.event.seq)
        if entry.trial is not None and (
            isinstance(entry.event, Exited) or isinstance(entry.decision, Complete | Prune)
        ):
            self.ended.add(entry.trial)
        if isinstance(entry.event, Closed | Extended):
            self.closed = isinstance(entry.event, Closed)
        if isinstance(entry.event, Failed | Extended):
            self.failed = entry.event.message if isinstance(entry.event, Failed) else None

    @property
    def failure(self) -> str | None:
        """Return the error message of a custom search class that has failed, until the log has it; otherwise None."""
        found = self.searcher.failure if isinstance(self.searcher, Custom) and self.failed is None else None
        return found.message if found is not None else None


def failure_in(log: Sequence[LogEntry]) -> str | None:
    """Return the error message with which a search has ended, read from its log.

    None if the search has not failed, or if it was extended after that.
    """
    last = next((each.event for each in reversed(log) if isinstance(each.event, Failed | Extended)), None)
    return last.message if isinstance(last, Failed) else None
