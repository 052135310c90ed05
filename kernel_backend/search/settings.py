"""From the configuration of an experiment to the settings of its searcher, and to the units that it counts."""

from __future__ import annotations

import math

from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import Search, Settings
from kernel_backend.model.trial import Best


def settings_of(config: Config) -> Settings:
    """What the searcher of an experiment is built from; without a search there is a single trial."""
    asked = config.search or Search()
    units = config.steps if config.steps is not None else config.epochs
    return Settings(**asked.model_dump(), units=units, mode=config.metric.mode, seed=config.seed)


def unit_of(config: Config, report: StoredReport) -> int | None:
    """The unit at whose end something was reported: a step where steps are counted, else an epoch; None within one."""
    if config.steps is not None:
        return report.step
    return round(report.epoch) if abs(report.epoch - round(report.epoch)) < 1e-6 else None


def unit_in(config: Config, best: Best) -> int:
    """The unit in which something was reported, or with whose end."""
    return best.step if config.steps is not None else math.ceil(best.epoch - 1e-6)
