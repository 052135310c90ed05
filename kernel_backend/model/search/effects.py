"""What a search's decision does to trials; stored in one piece with the line of the log that says it."""

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
    """A trial goes the way of `event` (None: its state stays), and its other fields change to `changes`."""

    index: int
    event: Event | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


Effect = Added | Moved
