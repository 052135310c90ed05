"""Word the messages about a validation that lacks the metric by which the best checkpoint is chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernel_backend.model.experiment import Config, Metric
from kernel_backend.model.values import nearest

# Parts of names by which metrics that grow with quality are recognised, and those that shrink.
# fmt: off
_HIGHER = frozenset({
    "acc", "accuracy", "ap", "auc", "auroc", "bleu", "dice", "f1", "hits", "iou", "kappa", "map", "miou", "precision",
    "psnr", "r2", "recall", "return", "reward", "rouge", "score", "ssim", "top1", "top5",
})
_LOWER = frozenset({"cer", "error", "loss", "mae", "mse", "perplexity", "ppl", "rmse", "wer"})
# fmt: on


def missing_metric(config: Config, reported: Sequence[str]) -> str:
    """Return a note that no checkpoint is best, as the validation lacks the metric by which it is chosen.

    `reported` has the names of the metrics that it reports. If the option `--metric` was not given, the note says how
    to choose one of them.

    Examples
    --------
    >>> missing_metric(Config(), ["val_acc", "val_loss"])
    'val_acc and val_loss are reported, no loss: write --metric val_acc:max to keep the best checkpoint'
    >>> missing_metric(Config(metric=Metric(name="f1", mode="max")), ["loss", "accuracy"])
    '--metric f1: the validation reports no such metric, only loss accuracy; no checkpoint is best'
    """
    if _is_default(config, reported):
        return f"{_reported(config, reported)}: write --metric {_suggested(reported)} to keep the best checkpoint"
    return f"{_no_such(config, reported)}; no checkpoint is best"


def needed_metric(config: Config, reported: Sequence[str], way: str = "") -> str:
    """Return the error message that a search, `--patience` or the user needs a metric that no validation reports.

    `reported` has the names of the metrics that it reports. `way` says how to report it.

    Examples
    --------
    >>> needed_metric(Config(patience=3), ["f1"])
    'f1 is reported, no loss, and --patience goes by it: write --metric f1:max'
    >>> needed_metric(Config(metric=Metric(name="acc")), ["loss"], "print it")
    '--metric acc: the validation reports no such metric, only loss: choose one of these, or print it'
    >>> needed_metric(Config(metric=Metric(name="los")), ["loss"])
    '--metric los: the validation reports no such metric (did you mean loss?), only loss: choose one of these'
    """
    if not reported:
        return f"--metric {config.metric.name}: no value is reported: {way}"
    way_out = f", or {way}" if way else ""
    if config.search is None and config.patience is None:
        return f"{_no_such(config, reported)}: choose one of these{way_out}"
    what = "a search" if config.search is not None else "--patience"
    if _is_default(config, reported):
        return f"{_reported(config, reported)}, and {what} goes by it: write --metric {_suggested(reported)}{way_out}"
    return f"{_no_such(config, reported)}; {what} goes by it: choose one of these{way_out}"


def _is_default(config: Config, reported: Sequence[str]) -> bool:
    """Return True if `--metric` was not given (its default holds), and the validation reports some other metric."""
    return config.metric == Metric() and bool(reported)


def _no_such(config: Config, reported: Sequence[str]) -> str:
    name = config.metric.name
    return f"--metric {name}: the validation reports no such metric{nearest(name, reported)}, only {' '.join(reported)}"


def _reported(config: Config, reported: Sequence[str]) -> str:
    listed = " and ".join(filter(None, [", ".join(reported[:-1]), reported[-1]]))
    return f"{listed} {'is' if len(reported) == 1 else 'are'} reported, no {config.metric.name}"


def _suggested(reported: Sequence[str]) -> str:
    """Return one of the reported metrics as a value for `--metric`, such as `val_acc:max`.

    It is the first whose name shows whether higher or lower is better (as in `acc` or `error`), else the first of all.
    """
    parts = {name: frozenset(re.findall(r"[a-z]+\d*", name.lower())) for name in reported}
    name = next((each for each in reported if parts[each] & (_HIGHER | _LOWER)), reported[0])
    return f"{name}:max" if parts[name] & _HIGHER else f"{name}:min" if not parts[name] & _LOWER else name
