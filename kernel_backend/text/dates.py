"""Format when an experiment started."""

from __future__ import annotations

from datetime import datetime

from kernel_backend.model.views.overview import Overview


def when_text(at: float, now: float) -> str:
    """Format a time (seconds since the epoch) as local time: `today 21:14`, `yesterday 21:14`, `28 Nov 21:14`.

    Of another year, except yesterday, the hour is left out: `28 Nov 2025`.
    """
    day, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
    ago = (today.date() - day.date()).days
    if day.year != today.year and ago > 1:
        return f"{day.day} {day:%b %Y}"
    word = {0: "today", 1: "yesterday"}.get(ago) or f"{day.day} {day:%b}"
    return f"{word} {day:%H:%M}"


def started_at(overview: Overview) -> float | None:
    """Return when an experiment first held slots; None if it has not yet.

    If `overview` has only the newest of many attempts, return when it was submitted.
    """
    granted = [each.granted_at for each in overview.attempts if each.granted_at is not None]
    whole = any(attempt.number == 1 for attempt in overview.attempts)
    return None if not granted else min(granted) if whole else overview.experiment.created_at


def started_text(overview: Overview, now: float) -> str:
    """Format when an experiment started, such as `today 21:14`; "" before it has held slots."""
    started = started_at(overview)
    return "" if started is None else when_text(started, now)
