"""Format the disk usage of experiments and users as text."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_backend.model.disk import DiskReport, DiskUsage
from kernel_backend.model.sizes import size

_COLUMNS = ("checkpoints", "artifacts", "attempts")  # `attempts` are logs and code; all else is `other`
_HEAD = ["total", "checkpoints", "artifacts", "logs, code", "other"]
EXPERIMENT_HEAD = ["no", "name", "owner", *_HEAD]
USER_HEAD = ["user", *_HEAD]


def usage_lines(usage: DiskUsage) -> list[str]:
    """Format the disk usage of an experiment: `#12 digits: 1.2 GB (checkpoints 1.1 GB, attempts 20 MB)`.

    Further lines say why a deletion frees less.
    """
    parts = _parts(usage.bytes)
    head = f"#{usage.experiment} {usage.name}".strip()
    return [f"{head}: {size(usage.total)}" + (f" ({parts})" if parts else ""), *(f"  {each}" for each in usage.needed)]


def experiment_rows(report: DiskReport, limit: int) -> list[list[str]]:
    """Return a table row for each of the `limit` largest experiments, the largest first."""
    return [
        [str(each.experiment), each.name, each.owner, size(each.total), *_cells(each.bytes)]
        for each in report.experiments[:limit]
    ]


def user_rows(report: DiskReport) -> list[list[str]]:
    """Return a table row for each user, with the bytes on disk."""
    return [[each.name, size(each.total), *_cells(each.bytes)] for each in report.users]


def report_lines(report: DiskReport, limit: int) -> list[str]:
    """Return the lines below the tables: sums, files that experiments share, free space, and warnings."""
    rest = report.experiments[limit:]
    lines = [f"and {len(rest)} more: {size(sum(each.total for each in rest))}"] if rest else []
    lines.append(f"all experiments: {size(sum(each.total for each in report.experiments))}")
    if report.shared:
        lines.append(f"shared: {_parts(report.shared)}")
    if report.free is not None and report.size:
        lines.append(f"free: {size(report.free)} of {size(report.size)}")
    return [*lines, *report.warnings]


def _parts(sizes: Mapping[str, int]) -> str:
    kinds = sorted(sizes.items(), key=lambda each: -each[1])
    return ", ".join(f"{kind} {size(count)}" for kind, count in kinds)


def _cells(sizes: Mapping[str, int]) -> list[str]:
    other = sum(count for kind, count in sizes.items() if kind not in _COLUMNS)
    return [size(count) if count else "" for count in (*(sizes.get(kind, 0) for kind in _COLUMNS), other)]
