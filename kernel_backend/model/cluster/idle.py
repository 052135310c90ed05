"""Detect gangs that leave their slots unused, from the measured use of slots. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernel_backend.model.launch.utilisation import LATEST, DeliveredUse, StoredUse

IdleAction = Literal["", "notify", "release"]
IDLE_ACTIONS: tuple[IdleAction, ...] = ("", "notify", "release")
TrialKey = tuple[int, int]  # experiment and trial
FRESH_S = 120.0  # age of the newest sample up to which it tells of the present


@dataclass(frozen=True)
class IdleRule:
    """Rule of an admin about idle gangs, and the action on them.

    A gang is idle if it has used less than the fraction `below` of each of its slots for `after` seconds.
    """

    action: IdleAction = ""  # "": none; notify: a note to the owner; release: a checkpoint, then a pause
    after: float = 1800.0
    below: float = 0.05


def busy(slot: DeliveredUse) -> float | None:
    """Return how busy a slot is: the fraction of time in which its GPU computed, or without a GPU the CPU cores in use.

    None if that is unknown.
    """
    use = slot.use
    return use.gpu if use.gpu is not None or slot.device else use.cpu


def idle_seconds(
    used: Iterable[StoredUse], sizes: Mapping[TrialKey, int], below: float, at: float
) -> dict[TrialKey, float]:
    """Return for how many measured seconds up to `at` each gang has left all of its slots unused.

    A slot is unused while its use is less than the fraction `below`; one whose use is not known counts as used. `sizes`
    has the number of slots of each gang.
    """
    slots: defaultdict[TrialKey, defaultdict[int, list[DeliveredUse]]] = defaultdict(lambda: defaultdict(list))
    for each in used:
        slots[each.experiment, each.trial][each.slot.rank].append(each.slot)
    found: dict[TrialKey, float] = {}
    for key, size in sizes.items():
        idle = [_idle_slot(records, below, at) for records in slots[key].values()]
        found[key] = min(idle) if len(idle) >= max(1, size) else 0.0
    return found


def _idle_slot(records: Sequence[DeliveredUse], below: float, at: float) -> float:
    """Return for how many seconds up to its newest sample a slot has been used less than the fraction `below`.

    The count ends at the newest period in which the slot was used, or its use is unknown. It is 0 if the newest sample
    is missing or too old.
    """
    latest = next((each for each in records if each.number == LATEST), None)
    if latest is None or at - latest.use.at > FRESH_S or not _idle(latest, below):
        return 0.0
    seconds, expected = latest.use.seconds, 0
    for period in sorted((each for each in records if each.number > LATEST), key=lambda each: -each.number):
        if not _idle(period, below) or (expected and period.number != expected):
            break
        seconds, expected = seconds + period.use.seconds, period.number - 1
    return seconds


def _idle(slot: DeliveredUse, below: float) -> bool:
    used = busy(slot)
    return used is not None and used < below
