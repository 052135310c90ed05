"""Define the effects of search decisions on trials, which are stored in one transaction with the search's log entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_backend.model.events import Event
from kernel_backend.model.record import Value


@dataclass(frozen=True)
class Added:
    """Effect: a new trial is created and queued."""

    index: int
    params: Mapping[str, Value]
    until: int | None = None
    begins_from: str | None = None  # a checkpoint `12.3/<step>-<attempt>` of another trial


@dataclass(frozen=True)
class Moved:
    """Effect: a trial changes state by `event` (None: its state stays), and its fields in `changes` get new values."""

    index: int
    event: Event | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


Effect = Added | Moved
