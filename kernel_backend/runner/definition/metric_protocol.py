"""Recognise objects that are updated batch by batch, as those of torchmetrics."""

from __future__ import annotations

from typing import Any


def is_metric(value: Any) -> bool:
    """Return True if the value is an object that is updated batch by batch and then computes."""
    kind = type(value)  # on the class: a metric class itself is not a metric
    return all(callable(getattr(kind, name, None)) for name in ("update", "compute", "reset"))
