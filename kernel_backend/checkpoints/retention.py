"""Decide by the retention rules which checkpoints to delete, with the reasons why others are retained."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.model.experiment import Keep, Metric

# Two checkpoints are retained for a restart: if the newest is damaged, the one before is used.
FALL_BACKS = 2


class RetentionDecision(NamedTuple):
    """Checkpoint with the reasons to retain it, for display; without a reason it may be deleted."""

    manifest: Manifest
    reasons: tuple[str, ...]


class _Candidate(NamedTuple):
    """Candidate for the best checkpoint, sorted best first; ties go to the lower trial, then the older one."""

    lower: float
    trial: int
    order: tuple[int, int]
    place: int  # index in its trial's list


def decide_retention(
    trials: Mapping[int, Sequence[Manifest]], keep: Keep, metric: Metric, may_run: Collection[int]
) -> list[RetentionDecision]:
    """Return, for each checkpoint of an experiment's trials, the decision whether to retain it, with reasons.

    `trials` has the checkpoints of each trial, oldest first. A checkpoint that any of the rules `keep` selects is
    retained, as are pinned ones, those that an evaluation has yet to judge, and the two newest of a trial that may run
    again (`may_run` has these trials). Only checkpoints with a finite value of the metric can be the best.
    """
    candidates = {trial: _candidates(trial, manifests, metric) for trial, manifests in trials.items()}
    overall = _best((each for own in candidates.values() for each in own), keep.best_overall or 0)
    verdicts = []
    for trial, manifests in trials.items():
        best = _best(candidates[trial], keep.best)
        for place, manifest in enumerate(manifests):
            newer = len(manifests) - place - 1
            rules = {
                "best": (trial, place) in best,
                "best overall": (trial, place) in overall,
                "latest": newer < keep.latest,
                "fall-back": trial in may_run and newer < FALL_BACKS,
                "pinned": manifest.pinned,
                "awaited": manifest.awaited,
                "predicts": trial in may_run and bool(manifest.origin),
            }
            if manifest.origin and trial not in may_run:  # a copied model, which no attempt needs any more
                rules = {"pinned": manifest.pinned}
            verdicts.append(RetentionDecision(manifest, tuple(reason for reason, holds in rules.items() if holds)))
    return verdicts


def expendable(committed: Sequence[Manifest], keep: Keep, metric: Metric) -> list[Manifest]:
    """Return those of a running trial's `committed` checkpoints (oldest first) that the rules `keep` allow to delete.

    `metric` determines the best ones. Checkpoints of other trials are not known here, so that `best_overall` is applied
    to this trial alone.
    """
    verdicts = decide_retention({0: committed}, keep, metric, may_run={0})
    return [verdict.manifest for verdict in verdicts if not verdict.reasons]


def _candidates(trial: int, manifests: Sequence[Manifest], metric: Metric) -> list[_Candidate]:
    return [
        _Candidate(cost, trial, manifest.order, place)
        for place, manifest in enumerate(manifests)
        if math.isfinite(cost := metric.cost(manifest.validation))
    ]


def _best(candidates: Iterable[_Candidate], count: int) -> set[tuple[int, int]]:
    """Return (trial, index in the trial's list) of the `count` best checkpoints."""
    return {(each.trial, each.place) for each in sorted(candidates)[:count]}
