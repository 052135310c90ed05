"""Wrap samplers of other libraries: Optuna's TPE and Gaussian process, and CMA-ES from the package `cmaes`.

They are an optional extra, `daylight[search]`. Each proposal builds a new study from the observations, so that a
sampler is a pure function of seed, number and observations. A log can therefore be replayed without calling the
sampler, and the next proposal does not depend on restarts. The samplers use the highest rung that has enough results
(as BOHB does: Falkner et al., ICML 2018), in the unit cube, and include trials that are training.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.search.encoding import Dimension
from kernel_backend.search.observations import Array, Observations
from kernel_backend.search.rungs import RankKey
from kernel_backend.search.samplers.base import stream

if TYPE_CHECKING:
    import optuna

LEAST = 10  # results required; before, proposals are random, as in Optuna
NEEDED = {"tpe": ("optuna",), "gp": ("optuna", "scipy", "torch"), "cmaes": ("cmaes",)}
LARGEST = 1e300  # replaces infinity, the value of a diverged trial, where it is not allowed


def check_installed(sampler: str) -> None:
    """Raise InvalidRequest, with what to install, if a library that this sampler needs is missing."""
    missing = [each for each in NEEDED.get(sampler, ()) if importlib.util.find_spec(each) is None]
    if missing:
        extra = "'daylight[search]'" + (" torch" if "torch" in missing else "")
        raise InvalidRequest(
            f"{sampler} needs {' and '.join(missing)} where the service runs: pip install {extra} there, "
            "or search with --sampler kde"
        )


class _OptunaSampler:
    most: ClassVar[int]
    """Results that a study is given, the best and the newest of all: the time of an ask grows with them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """Return the hyperparameters of proposal `number`; random until there are enough results."""
        random, dimensions = stream(self._seed, number), seen.encoder.dimensions
        point = [random.random() for _ in dimensions]
        found = seen.telling(max(LEAST, len(dimensions) + 1))
        if found is not None:
            point = self._suggest(random.getrandbits(31), found[1].places, seen)
        return seen.encoder.decode(point)

    def _suggest(self, seed: int, places: Sequence[RankKey], seen: Observations) -> list[float]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # otherwise Optuna logs each new study
        known: dict[int, float | None] = {place.trial: place.value for place in some(places, self.most)}
        told = {place.trial for place in places}
        known |= {trial: None for trial in seen.training if trial not in told}
        numbers = sorted(known)  # in order of proposal: TPE gives older results less weight
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna warns that TPE's `group` is experimental
            study = optuna.create_study(sampler=self._sampler(seed))
            distributions = [_distribution(each) for each in seen.encoder.dimensions]
            for trial, point in zip(numbers, seen.points(numbers), strict=True):
                study.add_trial(self._trial(point, known[trial], distributions))
            asked = study.ask({str(place): each for place, each in enumerate(distributions)})
        chosen = enumerate(seen.encoder.dimensions)
        return [_coordinate(each, asked.params[str(place)]) for place, each in chosen]

    def _trial(self, point: Array, value: float | None, distributions: list[Any]) -> optuna.trial.FrozenTrial:
        """Return a trial of the Optuna study: running if it has no value yet, else complete."""
        from optuna.trial import TrialState, create_trial

        whole = {place: float(at) for place, at in enumerate(self._counting(point)) if not math.isnan(at)}
        return create_trial(
            state=TrialState.RUNNING if value is None else TrialState.COMPLETE,
            params={str(place): _internal(distributions[place], at) for place, at in whole.items()},
            distributions={str(place): distributions[place] for place in whole},
            value=value,
        )

    def _counting(self, point: Array) -> Array:
        """Return a point in which the coordinates that the Optuna study ignores are NaN."""
        raise NotImplementedError

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        raise NotImplementedError


class TpeSampler(_OptunaSampler):
    """Sampler by Optuna's tree-structured Parzen estimator: multivariate, grouped by jointly active parameters."""

    most = 300

    def _counting(self, point: Array) -> Array:
        return point

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)


class GpSampler(_OptunaSampler):
    """Sampler by Optuna's Gaussian process.

    Inactive (conditional) parameters become 0.5, as it needs complete vectors.
    """

    most = 150  # the cost grows with the cube

    def _counting(self, point: Array) -> Array:
        return np.nan_to_num(point, nan=0.5)

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed)


class CmaesSampler:
    """Sampler by CMA-ES (Hansen 2016) on [0, 1] per parameter; after convergence with twice the population.

    Each value of a choice is a part of [0, 1], and a parameter that a trial does not have counts as 0.5. For the
    restarts see IPOP: Auger and Hansen 2005. Each proposal replays all generations from the results so far, because a
    search of Daylight must be restorable from its log of trials, and Optuna's own state is not in that log.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """Return the hyperparameters of proposal `number`; random until there are enough results."""
        random, dimensions = stream(self._seed, number), len(seen.encoder.dimensions)
        point = [random.random() for _ in range(dimensions)]
        found = seen.telling(max(LEAST, dimensions + 1))
        if found is not None:
            places = sorted(found[1].places, key=lambda place: place.trial)
            points = np.nan_to_num(seen.points([place.trial for place in places]), nan=0.5)
            strategy = self._told(points, [min(place.value, LARGEST) for place in places])
            strategy.reseed_rng(random.getrandbits(31))
            point = strategy.ask()[:dimensions].tolist()
        return seen.encoder.decode(point)

    def _told(self, points: Array, values: Sequence[float]) -> Any:
        """Return the CMA-ES optimizer, updated by all complete generations of results."""
        if points.shape[1] == 1:  # CMA-ES needs two dimensions: a constant one is added
            points = np.column_stack([points, np.full(len(points), 0.5)])
        strategy = _strategy(np.full(points.shape[1], 0.5), None)
        at = restarts = 0
        while at + strategy.population_size <= len(values):
            generation = range(at, at + strategy.population_size)
            strategy.tell([(points[each], values[each]) for each in generation])
            at = generation.stop
            if strategy.should_stop():
                restarts += 1
                middle = np.random.default_rng((self._seed, restarts)).random((points.shape[1],))
                strategy = _strategy(middle, 2 * strategy.population_size)
        return strategy


def _strategy(middle: Array, population: int | None) -> Any:
    from cmaes import CMA

    bounds = np.tile([0.0, 1.0], (len(middle), 1))
    return CMA(mean=middle, sigma=1 / 6, bounds=bounds, seed=0, population_size=population)


def some(places: Sequence[RankKey], most: int) -> list[RankKey]:
    """Return all results, best first, or a selection of `most` if there are more.

    Half of the selection are the best results, the others the newest of the rest.
    """
    if len(places) <= most:
        return list(places)
    best, others = places[: most // 2], places[most // 2 :]
    newest = sorted(others, key=lambda place: place.trial)[len(best) - most :]
    return [*best, *newest]


def _distribution(dimension: Dimension) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return CategoricalDistribution(range(dimension.choices)) if dimension.choices else FloatDistribution(0.0, 1.0)


def _internal(distribution: Any, at: float) -> float | int:
    """Convert a coordinate in [0, 1] to Optuna's internal form: the index of a choice, else the coordinate itself."""
    choices = len(getattr(distribution, "choices", ()))
    return min(int(at * choices), choices - 1) if choices else at


def _coordinate(dimension: Dimension, value: float) -> float:
    """Convert a value in Optuna's internal form (index of a choice, else a coordinate) to a coordinate in [0, 1]."""
    return (value + 0.5) / dimension.choices if dimension.choices else value
