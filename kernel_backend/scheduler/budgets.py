"""Check whether a search has used up its budget or its time."""

from __future__ import annotations

from kernel_backend.model.search.records import Limit, Search


def used_up(search: Search, slot_seconds: float, seconds: float) -> Limit | None:
    """Return which limit of a search is used up, `budget` or `max_time`; None if neither is.

    `slot_seconds` is the slot-seconds that the search's trials have used, `seconds` the time since its submission.
    """
    if search.budget is not None and slot_seconds >= search.budget:
        return "budget"
    if search.max_time is not None and seconds >= search.max_time:
        return "max_time"
    return None
