"""When a search has used up what it was given."""

from __future__ import annotations

from kernel_backend.model.search.records import Limit, Search


def used_up(search: Search, slot_seconds: float, seconds: float) -> Limit | None:
    """What ends a search that has held slots for so long, so long after its submission; None while nothing does."""
    if search.budget is not None and slot_seconds >= search.budget:
        return "budget"
    if search.max_time is not None and seconds >= search.max_time:
        return "max_time"
    return None
