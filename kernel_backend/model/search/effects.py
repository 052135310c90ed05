"""Effects of search decisions on trials, stored atomically with their entry of the search log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_backend.model.events import Event
from kernel_backend.model.record import Value


@dataclass(frozen=True)
class Added:
    """A new trial, queued."""

    index: int
    params: Mapping[str, Value]
    until: int | None = None
    begins_from: str | None = None  # a checkpoint `12.3/<step>-<attempt>` of another trial


@dataclass(frozen=True)
class Moved:
    """Transition of a trial by `event` (None: its state stays), with `changes` to its other fields."""

    index: int
    event: Event | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


Effect = Added | Moved
