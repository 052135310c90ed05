"""Format what an experiment has reached: the one number that views, lists, notices and messages show of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_backend.model.experiment import Config
from kernel_backend.model.trial import Best, Trial
from kernel_backend.model.views.overview import Overview


def number(value: float) -> str:
    """Format a number with four significant digits: `0.412`, `12.5`, `1.2e-05`, `nan`."""
    if not math.isfinite(value):
        return str(value)
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e6 else f"{value:.4g}"


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Format metrics, the loss first: `loss 0.412  accuracy 0.912`."""
    ordered = sorted(metrics.items(), key=lambda item: item[0] != "loss")
    return "  ".join(f"{name} {number(value)}" for name, value in ordered)


def newest_text(trial: Trial, config: Config) -> str:
    """Format a trial's newest validation metrics; before the first validation, its newest `training loss 0.412`.

    What uses a model trains nothing: there the values of the rows so far are `loss 0.412`.
    """
    kind, metrics = trial.newest
    text = metrics_text(metrics)
    return f"training {text}" if text and kind == "training" and not config.uses_model else text


def result_text(overview: Overview) -> str:
    """Format the number of an experiment: the best value of its `--metric`, where it was, and the newest beside it.

    Examples: `accuracy 0.9697 best, epoch 6 (middle dot) now 0.9461`, of a search `error 0.034 best, trial 12.7, epoch
    9`. Of an evaluation, and without a value of the metric, the newest values are returned; "" if there are none.
    """
    trial, config = overview.front, overview.experiment.config
    if trial is None or trial.best is None or config.form == "evaluation":
        return newest_text(trial, config) if trial else ""
    which = [f"trial {trial.id}"] if config.search is not None else []
    best = f"{config.metric.name} {number(trial.best.value)} best"
    said = ", ".join([best, *which, *_place(trial.best, config)])
    newest = config.metric.of(trial.metrics)
    if config.search is not None or newest is None or trial.best.value == newest:
        return said
    return f"{said} \N{MIDDLE DOT} {'last' if overview.ended else 'now'} {number(newest)}"


def _place(best: Best, config: Config) -> list[str]:
    """Return where the best value was; a program that runs unchanged has no epochs, and maybe no steps."""
    if config.as_it_is or config.steps is not None:
        return [f"step {best.step}"] if best.step else []
    return [f"epoch {number(best.epoch)}"]
