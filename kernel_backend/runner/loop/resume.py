"""Restore the counters of a training loop from a checkpoint."""

from __future__ import annotations

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.model.trial import BEFORE
from kernel_backend.runner.loop.training import Training


def take_position(training: Training, manifest: Manifest) -> None:
    """Restore the step, the best validation and the other counters of the loop from a checkpoint's manifest.

    Call it after the parts of the checkpoint were restored.
    """
    facts = manifest.state["training"]
    training.step = training.began = manifest.step
    # The best and the counts of an older version stand among the facts of the loop.
    judged = facts.get("judgement") or {**facts, "waited": facts.get("stale", 0)}
    training.judgement.restore(judged, of_another=manifest.attempt == BEFORE)
    training.validated = facts["validated"]
    training.ends = facts.get("ends", True)
    training.left_out = [range(*each) for each in facts.get("left_out", ())]
    training.passes, training.validation_metrics = facts.get("passes", 0), dict(manifest.metrics)
    training.current = max(0, training.passes - (not training.validated))
    training.train.restore(facts["data"])
    total = training.total_steps
    if total is not None:
        training.over = training.step >= total
    else:
        training.over = training.passes >= training.config.epochs if "passes" in facts else facts["over"]
    training.over = training.over or training.judgement.stopped
