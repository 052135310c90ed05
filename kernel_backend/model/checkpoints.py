"""Select a checkpoint by a user's criterion, and describe what the retention rules delete."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.experiment import Metric
from kernel_backend.model.record import Record
from kernel_backend.model.views.overview import CheckpointInfo


class CheckpointSelector(NamedTuple):
    """Criterion that selects a checkpoint: the newest, the best by the experiment's metric, or the one of a step.

    Exactly one field must be set.
    """

    latest: bool = False
    best: bool = False
    step: int | None = None

    @property
    def given(self) -> int:
        """Return how many of the fields `latest`, `best` and `step` are set."""
        return self.latest + self.best + (self.step is not None)


class CheckpointDecision(Record):
    """Decision to retain or delete one checkpoint of the trial `experiment.trial`, with the reasons for it."""

    experiment: int
    trial: int
    id: str  # <step>-<attempt>, with suffix `.bad` if it is quarantined
    bytes: int
    reasons: tuple[str, ...]  # why it is retained, or why it is deleted


class LogsDecision(Record):
    """Decision to remove the logs and the unpacked code of an ended experiment."""

    experiment: int
    bytes: int
    days: int  # since the experiment ended


class ReportsDecision(Record):
    """Decision to thin out the training reports of an ended experiment."""

    experiment: int
    removed: int
    of: int  # training reports before
    days: int  # since the experiment ended


class GarbageReport(Record):
    """What the retention rules retain and delete: checkpoints (`stays` and `goes`), logs and reports.

    In a dry run nothing is deleted. Otherwise the deletions have been done, except for those in `problems`.
    """

    goes: tuple[CheckpointDecision, ...] = ()
    stays: tuple[CheckpointDecision, ...] = ()
    running: tuple[str, ...] = ()  # trials that were skipped: their own attempts apply the rules
    problems: tuple[str, ...] = ()  # what could not be deleted, and why
    logs: tuple[LogsDecision, ...] = ()  # logs that `daylight serve --keep-logs` removes
    reports: tuple[ReportsDecision, ...] = ()  # reports that `daylight serve --keep-reports` removes


class GarbageRequest(Record):
    """Body of `POST /api/gc`: the experiment (None: all experiments of the user), and whether it is a dry run."""

    experiment: int | None = None
    dry_run: bool = False


def candidates(found: Sequence[CheckpointInfo], metric: Metric, which: CheckpointSelector) -> list[CheckpointInfo]:
    """Return those of the `found` checkpoints that match `which`, best match first: callers may skip damaged ones.

    `metric` ranks them if `which` selects the best.
    Raises InvalidRequest unless exactly one criterion is set, and if checkpoints of several trials match `latest` or
    `step`. Raises NotFound if none matches.
    """
    if which.given != 1:
        raise InvalidRequest("say which checkpoint: one of --latest, --best or --step S")
    if not found:
        raise NotFound("no checkpoint has been committed")
    if which.best:
        return _best_first(found, metric)
    if len({each.trial for each in found}) > 1:
        raise InvalidRequest("there are several trials with checkpoints: name one, such as 12.1")
    newest_first = sorted(found, key=lambda each: each.order, reverse=True)
    return newest_first if which.latest else _of_step(newest_first, which.step)


def best_or_newest(found: Sequence[CheckpointInfo], metric: Metric) -> CheckpointSelector:
    """Return the criterion for a user who has named none: the best checkpoint, or the newest if none was validated."""
    judged = any(math.isfinite(metric.cost(each.metrics)) for each in found)
    return CheckpointSelector(latest=not judged, best=judged)


def choose(found: Sequence[CheckpointInfo], metric: Metric, which: CheckpointSelector) -> CheckpointInfo:
    """Return the one of the `found` checkpoints that matches `which` best; raises the same errors as `candidates`."""
    return candidates(found, metric, which)[0]


def _best_first(found: Sequence[CheckpointInfo], metric: Metric) -> list[CheckpointInfo]:
    """Return the checkpoints sorted by the metric, best first; ties go to the lower trial and the earlier step.

    Checkpoints without a finite value of the metric are left out.
    """
    valued = ((metric.cost(each.metrics), each.trial, each.order, each) for each in found)
    ranked = sorted((each for each in valued if math.isfinite(each[0])), key=itemgetter(0, 1, 2))
    if not ranked:
        raise NotFound(
            f"no checkpoint has a value of {metric.name}: nothing was validated at their steps; take --latest"
        )
    return [each for *_, each in ranked]


def _of_step(newest_first: Sequence[CheckpointInfo], step: int | None) -> list[CheckpointInfo]:
    chosen = [each for each in newest_first if each.step == step]
    if not chosen:
        steps = ", ".join(dict.fromkeys(str(each.step) for each in reversed(newest_first)))
        raise NotFound(f"there is no checkpoint at step {step}; there are those at {steps}")
    return chosen
