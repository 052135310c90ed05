"""Convert trials of earlier experiments to events at the start of a search's log.

These trials are numbered 0, -1, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Happening, ParamsAssigned, Reported
from kernel_backend.model.search.space import Space
from kernel_backend.search.encoding import Encoder


class PriorTrial(NamedTuple):
    """Trial of another experiment: its hyperparameters, and (unit, value of the metric) pairs."""

    params: Mapping[str, Value]
    values: Sequence[tuple[int, float]]


def comparable(trials: Sequence[PriorTrial], space: Space) -> list[PriorTrial]:
    """Return the trials that have values and lie in this space, reduced to the space's hyperparameters.

    An empty space, as of a custom search, accepts all trials and hyperparameters.
    """
    encoder, found = Encoder(space), []
    for trial in trials:
        params = {name: trial.params[name] for name in space.names or trial.params if name in trial.params}
        try:
            encoder.encode(params)
        except ValueError:
            continue
        if trial.values:
            found.append(PriorTrial(params, trial.values))
    return found


def prior_events(trials: Sequence[PriorTrial]) -> Iterator[Happening]:
    """Yield the hyperparameters and reports of these trials as events, one trial after the other."""
    for number, trial in enumerate(trials):
        yield ParamsAssigned(trial=-number, params=dict(trial.params))
        for unit, value in trial.values:
            yield Reported(trial=-number, unit=unit, value=value)
