"""Check whether a search has used up its budget or its time."""

from __future__ import annotations

from kernel_backend.model.search.records import Limit, Search


def used_up(search: Search, slot_seconds: float, seconds: float) -> Limit | None:
    """Return the limit of a search that is used up, `budget` or `max_time`; None while neither is.

    `slot_seconds` is the use of its trials, `seconds` the time since its submission.
    """
    if search.budget is not None and slot_seconds >= search.budget:
        return "budget"
    if search.max_time is not None and seconds >= search.max_time:
        return "max_time"
    return None
