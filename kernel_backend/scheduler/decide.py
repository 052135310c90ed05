"""Which asks start now. Nothing is started, saved or slept on here."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_backend.model.resources import Placement
from kernel_backend.scheduler.picture import Ask, Picture
from kernel_backend.scheduler.placement import place


@dataclass(frozen=True)
class Start:
    """This ask gets these slots now."""

    ask: Ask
    placement: Placement


def decide(picture: Picture) -> list[Start]:
    """The asks that start, first come first served.

    The head of the queue is never overtaken: a smaller ask behind it would take the slots that it waits for.
    """
    free = picture.free()
    starts: list[Start] = []
    for ask in picture.awake():
        placement = place(picture.nodes_for(ask), free, ask.slots)
        if placement is None:
            break
        for share in placement:
            free[share.node] = [slot for slot in free[share.node] if slot not in share.slots]
        starts.append(Start(ask, placement))
    return starts
