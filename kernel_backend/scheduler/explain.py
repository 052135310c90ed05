"""Why an ask waits, in the words a person reads beside the chip."""

from __future__ import annotations

from kernel_backend.model.overview import Wait
from kernel_backend.scheduler.picture import Ask, Picture
from kernel_backend.scheduler.placement import largest_gang


def explain(picture: Picture, ask: Ask) -> Wait:
    """The place of `ask` in the queue (1 is its head) and what it waits for."""
    ahead = sum(other.order < ask.order for other in picture.awake())
    nodes = picture.nodes_for(ask)
    total = largest_gang(nodes)
    free = sum(len(slots) for name, slots in picture.free().items() if name not in ask.excluded)
    if ask.preparing:
        reason = ask.preparing
    elif picture.rests(ask):
        reason = f"tried again {ask.rest:.0f} s after the last attempt: it made no progress, nor did the one before"
    elif ask.trouble:
        reason = f"cannot be started just now, and is tried again: {ask.trouble}"
    elif ahead:
        reason = f"{_ordinal(ahead + 1)} in queue; {total - free} of {_slots(total)} in use"
    elif ask.slots <= free:
        reason = f"{_slots(ask.slots)} free, starting"
    else:
        reason = f"next in queue; {_slots(ask.slots)} asked, {free} of {total} free"
    left_out = sorted({node.name for node in picture.nodes} - {node.name for node in nodes})
    return Wait(reason="; ".join([reason, *(f"without {name}" for name in left_out)]), place=ahead + 1)


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
