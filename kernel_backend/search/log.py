"""Rebuild a search's state by replaying its log of events and decisions."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_backend.model.search.records import (
    Closed,
    Create,
    Decision,
    Exited,
    Extended,
    Failed,
    Followed,
    Happening,
    LogEntry,
    ParamsAssigned,
    Promoted,
    Reported,
    Resume,
    Settings,
    Vacancy,
    Verdict,
)
from kernel_backend.model.search.space import Space
from kernel_backend.search.base import Searcher
from kernel_backend.search.custom import Custom, SearchProcess
from kernel_backend.search.follower import Follower
from kernel_backend.search.make import make


def apply_event(searcher: Searcher, event: Happening) -> Decision | None:
    """Apply an event to a searcher; return the searcher's decision, or None for an event without one.

    Raises Conflict if the event is a user's request that cannot be met.
    """
    match event:
        case Vacancy():
            return searcher.on_slot()
        case Reported():
            verdict = searcher.on_report(event.trial, event.unit, event.value)
            return verdict if event.trial > 0 else None  # no trial waits for a decision on a result of another search
        case Exited():
            searcher.on_exit(event.trial, event.reason)
        case ParamsAssigned():
            searcher.told(event.trial, event.params)
        case Promoted():
            searcher.promote(event.trial)
        case Followed() if isinstance(searcher, Follower):
            searcher.on_checkpoint(event.checkpoint)
        case Extended():
            searcher.extend(event.trials)
        case Closed():
            searcher.close()
        case Failed() if isinstance(searcher, Custom):
            searcher.fail(event.message)
        case Failed():
            searcher.close()
    return None


def replay(searcher: Searcher, entries: Iterable[LogEntry]) -> Searcher:
    """Apply log entries to a searcher with the logged decisions, so that no sampler is called; return the searcher."""
    for entry in entries:
        event, decision = entry.event, entry.decision
        if isinstance(event, Vacancy):
            if isinstance(decision, Create | Resume):
                searcher.granted(decision)
            continue
        apply_event(searcher, event)
        if isinstance(searcher, Custom) and isinstance(event, Reported) and isinstance(decision, Verdict):
            searcher.judged(event.trial, decision)
    return searcher


def fold(
    settings: Settings, space: Space, entries: Iterable[LogEntry], search_process: SearchProcess | None = None
) -> Searcher:
    """Return a new searcher to which a whole log has been applied; raises the errors of `make`."""
    return replay(make(settings, space, search_process), entries)
