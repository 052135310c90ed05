"""Forecast by simulation how much training a search will need, and how long it will take."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.registry import method_of
from kernel_backend.model.search.space import Space
from kernel_backend.search.make import make
from kernel_backend.search.simulation.problems import Trained
from kernel_backend.search.simulation.simulate import simulate

RUNS = 3


class Forecast(NamedTuple):
    """Forecast of the cost of a search, averaged over several simulated runs."""

    trials: float
    units: float  # units trained by all trials
    length: float  # duration, in units of one gang


def forecast(settings: Settings, space: Space, gangs: int) -> Forecast | None:
    """Return a forecast of the total training and the duration of a search on `gangs` parallel gangs.

    None if a budget ends the search, or if a custom class decides. The sampler is not simulated, since only the ranks
    of trials determine how long they train.
    """
    if method_of(settings.method).own_class or (settings.trials is None and settings.ends_by_use):
        return None
    blind = settings.model_copy(update={"sampler": "random"})
    traces = [
        simulate(
            make(blind.model_copy(update={"seed": seed}), space),
            Trained(settings.units, seed=seed),
            gangs,
            seed,
            reports="targets",
        )
        for seed in range(RUNS)
    ]
    trials = fmean(len(trace.trials) for trace in traces)
    trained = fmean(sum(trial.trained for trial in trace.trials.values()) for trace in traces)
    return Forecast(trials, trained, fmean(trace.ended for trace in traces))
