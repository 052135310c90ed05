"""Define quotas of users and groups (weight, guarantee, limits), and their slot use."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, FiniteFloat, field_validator, model_validator

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Record
from kernel_backend.model.sizes import parse_size

_SLOT_HOURS = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)\s*([hdw])")
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


class SlotHours(Record):
    """Limit on use: at most `hours` slot-hours (slots times hours) in any time span of `window` seconds."""

    hours: float = Field(gt=0, allow_inf_nan=False)
    window: float = Field(gt=0, allow_inf_nan=False)

    @property
    def seconds(self) -> float:
        """Return the budget in slot-seconds."""
        return 3600.0 * self.hours

    def __str__(self) -> str:
        """Format the budget as `parse_slot_hours` reads it: `500/7d`."""
        unit = "d" if self.window % _SECONDS["d"] == 0 else "h"
        return f"{self.hours:g}/{self.window / _SECONDS[unit]:g}{unit}"


def parse_slot_hours(text: str) -> SlotHours:
    """Parse a budget of slot-hours such as `500/7d` (at most 500 in any 7 days), `40/12h` or `2000/4w`.

    Raises InvalidRequest for any other text.
    """
    found = _SLOT_HOURS.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0 or float(found[2]) <= 0:
        raise InvalidRequest(f"{text!r} is no number of slot-hours in a window: write 500/7d, 40/12h or 2000/4w")
    return SlotHours(hours=float(found[1]), window=float(found[2]) * _SECONDS[found[3]])


class Quota(Record):
    """Quota of one user or one group; a limit of None means that there is none.

    Parameters
    ----------
    weight : float, default 1
        Share relative to others: of two that both want more, one of weight 2 gets twice as much.
    guarantee : int, default 0
        Slots that they get on demand; others borrow them while they are idle.
    limit : int, optional
        Most slots that they may hold.
    slot_hours : SlotHours or str, optional
        Most slot-hours (slots times hours) in a window of time, such as ``"500/7d"``: 500 in any 7 days.
    max_slots_per_trial : int, optional
        Most slots that one trial may hold.
    priority : int, default 0
        Highest priority that they may request.
    storage : int or str, optional
        Most bytes on disk, such as ``"500GB"``; beyond it nothing new is accepted.

    Examples
    --------
    >>> from daylight.scheduler import Quota
    >>> Quota(limit=8, slot_hours="500/7d").slot_hours.hours
    500.0
    """

    weight: float = Field(1.0, gt=0)  # if two accounts want more slots, one of weight 2 gets twice as many
    guarantee: int = Field(0, ge=0)  # slots available on demand; others may borrow idle ones
    limit: int | None = Field(None, ge=0)  # maximum number of slots held at a time
    slot_hours: SlotHours | None = None
    max_slots_per_trial: int | None = Field(None, ge=1)
    priority: int = 0  # highest priority that the user may request
    storage: int | None = Field(None, gt=0, lt=2**63)  # maximum bytes on disk of all experiments

    @property
    def most(self) -> int | None:
        """Return the largest number of slots that one trial may hold; None for no limit."""
        return min((most for most in (self.limit, self.max_slots_per_trial) if most is not None), default=None)

    @field_validator("slot_hours", mode="before")
    @classmethod
    def _spelled(cls, value: Any) -> Any:
        return parse_slot_hours(value) if isinstance(value, str) else value

    @field_validator("storage", mode="before")
    @classmethod
    def _bytes(cls, value: Any) -> Any:
        return parse_size(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _within_limit(self) -> Quota:
        if self.limit is not None and self.guarantee > self.limit:
            raise ValueError(f"a guarantee of {self.guarantee} is more than the limit of {self.limit}")
        return self


class Use(Record):
    """Slots that a user or a group holds now, and how much they have used before."""

    held: int  # slots held now
    decayed: FiniteFloat  # slot-seconds, exponentially decayed: use one half-life ago counts half
    window: FiniteFloat | None = None  # slot-seconds in the slot-hours window; None without such a quota
