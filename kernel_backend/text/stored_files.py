"""Format lists of checkpoints and artifacts, and reports of garbage collection."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.checkpoints import CheckpointDecision, GarbageReport
from kernel_backend.model.sizes import size
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.text import duration, number

ARTIFACT_HEAD = ("trial", "name", "size", "type", "step", "kept")


def checkpoint_head(metric: str) -> tuple[str, ...]:
    """Return the column names of the table of checkpoints; `metric` is the metric by which the best is chosen."""
    return ("trial", "checkpoint", "step", "epoch", metric, "size", "committed", "verified", "kept")


def checkpoint_row(info: CheckpointInfo, metric: str, now: float) -> tuple[str, ...]:
    """Return a checkpoint's row in the table whose columns `checkpoint_head` names."""
    value = info.metrics.get(metric)
    return (
        str(info.trial),
        info.id,
        str(info.step),
        f"{info.epoch:.2f}",
        "" if value is None else number(value),
        size(info.bytes),
        f"{duration(now - info.at)} ago",
        info.verified,
        ", ".join(info.kept) or "not by the rules",
    )


def artifact_row(artifact: Artifact, now: float) -> tuple[str, ...]:
    """Return an artifact's row in the table with the head `ARTIFACT_HEAD`."""
    when = f"{duration(now - artifact.at)} ago"
    return str(artifact.trial), artifact.name, size(artifact.size), artifact.media, str(artifact.step), when


def collected_lines(found: GarbageReport, dry_run: bool, verbose: bool = False) -> list[str]:
    """Return lines with the checkpoints, logs and reports that garbage collection deleted, and their total sizes.

    With `dry_run` they say what would be deleted; with `verbose`, the retained checkpoints are listed as well.
    """
    lines = [f"{_decision(each)}  {', '.join(each.reasons)}" for each in found.goes]
    if verbose:
        lines += [f"{_decision(each)}  stays: {', '.join(each.reasons)}" for each in found.stays]
        lines += [f"{trial}  is being trained: it applies the rules itself" for trial in found.running]
    count, verb = len(found.goes), "would go" if dry_run else "went"
    total = f", {size(sum(each.bytes for each in found.goes))}" if count else ""
    lines += [
        f"{each.experiment}  logs and code  {size(each.bytes)}  ended {each.days} days ago" for each in found.logs
    ]
    lines += [
        f"{each.experiment}  training reports  {each.removed:,} of {each.of:,}  ended {each.days} days ago"
        for each in found.reports
    ]
    last = [f"{count or 'no'} checkpoint{'' if count == 1 else 's'} {verb}{total}"]
    if found.logs:
        last.append(f"logs of {_ended(found.logs)} {verb}, {size(sum(each.bytes for each in found.logs))}")
    if found.reports:
        last.append(
            f"training reports of {_ended(found.reports)} {verb}, {sum(each.removed for each in found.reports):,}"
        )
    return [*lines, *found.problems, *last]


def _ended(decisions: Sequence[object]) -> str:
    return f"{len(decisions)} ended experiment{'' if len(decisions) == 1 else 's'}"


def _decision(each: CheckpointDecision) -> str:
    return f"{each.experiment}.{each.trial}  {each.id}  {size(each.bytes)}"
