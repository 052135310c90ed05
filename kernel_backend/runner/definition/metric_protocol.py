"""Recognise metric objects that are updated batch by batch, such as those of torchmetrics."""

from __future__ import annotations

from typing import Any


def is_metric(value: Any) -> bool:
    """Return True for an instance with `update`, `compute` and `reset`, such as a metric of torchmetrics."""
    kind = type(value)  # checked on the class: a metric class itself is not a metric
    return all(callable(getattr(kind, name, None)) for name in ("update", "compute", "reset"))
