"""Disk usage of an experiment as text."""

from __future__ import annotations

from kernel_backend.model.disk import DiskUsage
from kernel_backend.text import size


def usage_lines(usage: DiskUsage) -> list[str]:
    """Return `#12 digits: 1.2 GB (checkpoints 1.1 GB, attempts 20 MB)`, and below it what a deletion leaves."""
    kinds = sorted(usage.bytes.items(), key=lambda each: -each[1])
    parts = ", ".join(f"{kind} {size(count)}" for kind, count in kinds)
    head = f"#{usage.experiment} {usage.name}".strip()
    return [f"{head}: {size(usage.total)}" + (f" ({parts})" if parts else ""), *(f"  {each}" for each in usage.needed)]
