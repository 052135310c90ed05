"""Select a checkpoint by a user's criterion, and describe the decisions of the retention rules."""

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
    """Selector of a checkpoint: the newest, the best by the experiment's metric, or a step; exactly one must be set."""

    latest: bool = False
    best: bool = False
    step: int | None = None

    @property
    def given(self) -> int:
        """Return how many of the criteria `latest`, `best` and `step` are set."""
        return self.latest + self.best + (self.step is not None)


class CheckpointDecision(Record):
    """Decision of the retention rules about a checkpoint of trial `experiment.trial`."""

    experiment: int
    trial: int
    id: str  # <step>-<attempt>, with `.bad` behind it where it was set aside
    bytes: int
    reasons: tuple[str, ...]  # why it stays, or why it goes


class LogsDecision(Record):
    """Decision to remove an ended experiment's logs, with the unpacked code beside them."""

    experiment: int
    bytes: int
    days: int  # since its end


class GarbageReport(Record):
    """Retention decisions for checkpoints and logs. Unless it was a dry run, those not retained are deleted."""

    goes: tuple[CheckpointDecision, ...] = ()
    stays: tuple[CheckpointDecision, ...] = ()
    running: tuple[str, ...] = ()  # trials that were left alone: their attempts apply the rules
    problems: tuple[str, ...] = ()  # what should have gone and is still there, and why
    logs: tuple[LogsDecision, ...] = ()  # that go by `daylight serve --keep-logs`


class GarbageRequest(Record):
    """Body of `POST /api/gc`: the experiment (None: all), and whether it is a dry run."""

    experiment: int | None = None
    dry_run: bool = False


def candidates(found: Sequence[CheckpointInfo], metric: Metric, which: CheckpointSelector) -> list[CheckpointInfo]:
    """Return the checkpoints that match `which`, best match first, so that callers can skip damaged ones.

    Raises InvalidRequest unless exactly one criterion is given, and if several trials match `latest` or `step`;
    NotFound if there is none.
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


def choose(found: Sequence[CheckpointInfo], metric: Metric, which: CheckpointSelector) -> CheckpointInfo:
    """Return the first checkpoint that `candidates` gives for a selector; raises as `candidates` does."""
    return candidates(found, metric, which)[0]


def _best_first(found: Sequence[CheckpointInfo], metric: Metric) -> list[CheckpointInfo]:
    """Sort checkpoints by the metric; ties go to the lower trial and the earlier step, as for a trial's `best`.

    A checkpoint without a value, or with one that is not finite, is never best.
    """
    valued = [(each.metrics.get(metric.name, math.nan), each) for each in found]
    ranked = sorted(
        ((metric.lower(value), each.trial, each.order, each) for value, each in valued if metric.better(value, None)),
        key=itemgetter(0, 1, 2),
    )
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
