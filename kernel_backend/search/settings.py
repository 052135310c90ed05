"""Derive a searcher's settings, and its unit of training (epoch or step), from an experiment's configuration."""

from __future__ import annotations

import math

from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import Search, Settings
from kernel_backend.model.trial import Best


def settings_of(config: Config) -> Settings:
    """Return the settings of an experiment's searcher; for an experiment that is no search, those of a single trial."""
    asked = config.search or Search()
    units = config.steps if config.steps is not None else config.epochs
    return Settings(**asked.model_dump(), units=units, mode=config.metric.mode, seed=config.seed)


def unit_of(config: Config, report: StoredReport) -> int | None:
    """Return the unit at whose end a report was made; None if it was made within a unit.

    Units are steps if the experiment's length is set by `--steps`, else epochs.
    """
    if config.steps is not None:
        return report.step
    return round(report.epoch) if abs(report.epoch - round(report.epoch)) < 1e-6 else None


def unit_in(config: Config, best: Best) -> int:
    """Return the unit (epoch or step) within which, or at whose end, the best value was reported."""
    return best.step if config.steps is not None else math.ceil(best.epoch - 1e-6)
