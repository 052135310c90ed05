"""Adapt the searches of other libraries to Daylight's search protocol, so that all run on one simulated clock.

Each adapter calls the library's own classes as its documentation does, with their defaults, and reimplements nothing. A
trial that a library stops cannot be continued; one that it pauses can. Trainings are not run but read from a table of
recorded ones: each proposal is replaced by the nearest row, which is reported to the library. All contenders get the
same ranges of hyperparameters.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Resume
from kernel_backend.model.search.space import Space

Verdict = Continue | Pause | Prune | Complete


class Contender:
    """Base class of the adapters: propose new trials until the table has no more rows, and train each to the end."""

    def __init__(self, space: Space, units: int, most: int) -> None:
        self._space, self._units, self._most = space, units, most
        self._numbers = count(1)
        self.made = 0

    def wants(self) -> int:
        """Return how many more trials can start: the number of rows of the table that are left."""
        return self._most - self.made

    def on_slot(self) -> Create | Resume | None:
        """Start a new trial."""
        params = self.propose(next(self._numbers))
        return self._create(params)

    def propose(self, trial: int) -> dict[str, Value]:
        """Return the hyperparameters of a new trial."""
        raise NotImplementedError

    def _create(self, params: dict[str, Value]) -> Create:
        self.made += 1
        return Create(trial=self.made, params=params, until=self._units)

    def told(self, trial: int, params: dict[str, Value]) -> None:
        """Report to the library the hyperparameters `params` of the table's row that its trial got."""
        raise NotImplementedError

    def on_report(self, trial: int, unit: int, value: float) -> Verdict:
        """Return the library's decision on a trial after a report: go on, pause or stop."""
        raise NotImplementedError


def ranges(space: Space) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of each hyperparameter; all of them are logarithmic."""
    domains = {each.name: each.domain for each in space.parameters}
    return {name: (each.low, each.high) for name, each in domains.items() if isinstance(each, Range)}


class Optuna(Contender):
    """Search with Optuna's `study.ask()` and `study.tell()`.

    With a pruner it also calls `trial.report()` and `trial.should_prune()` at each unit.
    """

    def __init__(self, space: Space, units: int, most: int, sampler: Any, pruner: Any) -> None:
        import optuna

        super().__init__(space, units, most)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(sampler=sampler, pruner=pruner)
        self._distributions: dict[str, Any] = {
            name: optuna.distributions.FloatDistribution(low, high, log=True)
            for name, (low, high) in ranges(space).items()
        }
        self._trials: dict[int, Any] = {}
        self._prunes = not isinstance(pruner, optuna.pruners.NopPruner)

    def propose(self, trial: int) -> dict[str, Value]:
        self._trials[trial] = asked = self._study.ask(self._distributions)
        return dict(asked.params)

    def told(self, trial: int, params: dict[str, Value]) -> None:
        # Its users train what it proposes; only a table has another row, and for that it has no call.
        asked = self._trials[trial]
        for name, value in params.items():
            internal = self._distributions[name].to_internal_repr(value)
            asked.storage.set_trial_param(asked._trial_id, name, internal, self._distributions[name])

    def on_report(self, trial: int, unit: int, value: float) -> Verdict:
        from optuna.trial import TrialState

        asked = self._trials[trial]
        if self._prunes:
            asked.report(value, unit)
        if unit == self._units:
            self._study.tell(asked, None if np.isnan(value) else value, state=_state(value), skip_if_finished=True)
            return Complete()
        if self._prunes and asked.should_prune():
            self._study.tell(asked, state=TrialState.PRUNED)
            return Prune()
        return Continue(until=self._units)


def _state(value: float) -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL if np.isnan(value) else TrialState.COMPLETE  # as its `optimize` does


@dataclass(eq=False)
class _RayTrial:
    """The attributes of a trial that a scheduler of Ray Tune reads."""

    trial_id: str
    number: int
    config: dict[str, Value]
    status: str = "PENDING"
    is_saving: bool = False
    last_result: dict[str, float] = field(default_factory=dict)


class Ray(Contender):
    """Run a scheduler of Ray Tune on random configurations, calling it as Ray's controller does.

    As in `TuneController`, up to 200 trials wait, and the scheduler may choose the next of them or of the paused ones.
    """

    PENDING = 200

    def __init__(self, space: Space, units: int, most: int, seed: int, scheduler: Any) -> None:
        from ray import tune

        super().__init__(space, units, most)
        self._scheduler = scheduler
        self._random = np.random.RandomState(seed)
        np.random.seed(seed)  # brackets are drawn from numpy's own generator
        self._domains = {name: tune.loguniform(low, high) for name, (low, high) in ranges(space).items()}
        self._trials: list[_RayTrial] = []
        self._by_number: dict[int, _RayTrial] = {}
        self._pending = 0
        self._controller = SimpleNamespace(stop_trial=self._stop)

    def wants(self) -> int:
        self._fill()
        return 1 if self._next() is not None else 0

    def _fill(self) -> None:
        while self._pending < self.PENDING and len(self._trials) < self._most:
            config = {name: domain.sample(random_state=self._random) for name, domain in self._domains.items()}
            trial = _RayTrial(f"{len(self._trials):05d}", 0, config)
            self._trials.append(trial)
            self._pending += 1
            self._scheduler.on_trial_add(self._controller, trial)

    def _next(self) -> _RayTrial | None:
        from ray.tune.schedulers import HyperBandScheduler

        if isinstance(self._scheduler, HyperBandScheduler):
            found: _RayTrial | None = self._scheduler.choose_trial_to_run(self._controller)
            return found
        return next((trial for trial in self._trials[self.made :] if trial.status == "PENDING"), None)

    def on_slot(self) -> Create | Resume | None:
        self._fill()
        trial = self._next()
        if trial is None:
            return None
        before, trial.status = trial.status, "RUNNING"
        if before == "PAUSED":
            return Resume(trial=trial.number, until=self._units)
        self._pending -= 1
        decision = self._create(trial.config)
        trial.number = decision.trial
        self._by_number[decision.trial] = trial
        return decision

    def told(self, trial: int, params: dict[str, Value]) -> None:
        self._by_number[trial].config = params

    def on_report(self, trial: int, unit: int, value: float) -> Verdict:
        at = self._by_number[trial]
        at.last_result = {"training_iteration": unit, "loss": value}
        said = self._scheduler.on_trial_result(self._controller, at, at.last_result)
        if said == "CONTINUE" and unit < self._units:
            return Continue(until=self._units)
        if said == "PAUSE":
            at.status = "PAUSED"
            return Pause()
        self._scheduler.on_trial_complete(self._controller, at, at.last_result)
        at.status = "TERMINATED"
        return Complete() if unit == self._units else Prune()

    def _stop(self, trial: _RayTrial) -> None:
        """Stop a trial that waits, as `TuneController.stop_trial` does."""
        if trial.status in ("PENDING", "PAUSED"):
            self._pending -= trial.status == "PENDING"
            self._scheduler.on_trial_remove(self._controller, trial)
            trial.status = "TERMINATED"


class SyneTune(Contender):
    """Run a scheduler of Syne Tune, calling it as Syne Tune's `Tuner` does."""

    def __init__(self, space: Space, units: int, most: int, scheduler: Any) -> None:
        super().__init__(space, units, most)
        self._scheduler = scheduler
        self._trials: dict[int, Any] = {}

    def propose(self, trial: int) -> dict[str, Value]:
        suggestion = self._scheduler.suggest()
        return {name: float(suggestion.config[name]) for name in ranges(self._space)}

    def told(self, trial: int, params: dict[str, Value]) -> None:
        from datetime import datetime

        from syne_tune.backend.trial_status import Trial

        self._trials[trial] = Trial(trial_id=trial - 1, config=params, creation_time=datetime.now())
        self._scheduler.on_trial_add(self._trials[trial])

    def on_report(self, trial: int, unit: int, value: float) -> Verdict:
        # Its surrogates refuse NaN, so its users report the worst number there is instead.
        result = {"loss": value if np.isfinite(value) else 1e6, "epoch": unit}
        said = self._scheduler.on_trial_result(self._trials[trial], result)
        if said == "CONTINUE" and unit < self._units:
            return Continue(until=self._units)
        self._scheduler.on_trial_complete(self._trials[trial], result) if unit == self._units else None
        return Complete() if unit == self._units else Prune()


Make = Callable[[Space, int, int, int], Contender]
"""Of space, units, rows and seed."""


def _optuna(sampler: Callable[[int], Any], pruner: Callable[[int], Any]) -> Make:
    def make(space: Space, units: int, most: int, seed: int) -> Contender:
        return Optuna(space, units, most, sampler(seed), pruner(units))

    return make


def _optunas() -> dict[str, Make]:
    from optuna.pruners import HyperbandPruner, NopPruner
    from optuna.samplers import GPSampler, TPESampler

    def tpe(seed: int) -> Any:
        return TPESampler(seed=seed)

    def hyperband(units: int) -> Any:
        return HyperbandPruner(min_resource=1, max_resource=units)

    named = f"Optuna {version('optuna')}"
    return {
        f"{named} TPE": _optuna(tpe, lambda units: NopPruner()),
        f"{named} TPE + HyperbandPruner": _optuna(tpe, hyperband),
        f"{named} GP": _optuna(lambda seed: GPSampler(seed=seed), lambda units: NopPruner()),
    }


def _rays() -> dict[str, Make]:
    from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler

    def asha(space: Space, units: int, most: int, seed: int) -> Contender:
        return Ray(space, units, most, seed, AsyncHyperBandScheduler(metric="loss", mode="min", max_t=units))

    def hyperband(space: Space, units: int, most: int, seed: int) -> Contender:
        return Ray(space, units, most, seed, HyperBandScheduler(metric="loss", mode="min", max_t=units))

    return {f"Ray Tune {version('ray')} ASHA": asha, f"Ray Tune {version('ray')} HyperBand": hyperband}


def _syne_tunes() -> dict[str, Make]:
    from syne_tune.config_space import loguniform
    from syne_tune.optimizer import baselines

    def of(kind: Any) -> Make:
        def make(space: Space, units: int, most: int, seed: int) -> Contender:
            random.seed(seed)
            np.random.seed(seed)
            config_space = {name: loguniform(low, high) for name, (low, high) in ranges(space).items()}
            scheduler = kind(config_space, metric="loss", time_attr="epoch", max_t=units, random_seed=seed)
            return SyneTune(space, units, most, scheduler)

        return make

    named = f"Syne Tune {version('syne-tune')}"
    return {
        f"{named} {name}": of(getattr(baselines, kind))
        for name, kind in (("ASHA", "ASHA"), ("BOHB", "BOHB"), ("ASHA + CQR", "ASHACQR"))
    }


def installed() -> tuple[dict[str, Make], list[str]]:
    """Return the contenders whose library is installed, by name, and the names of the missing libraries."""
    warnings.simplefilter("ignore")
    found: dict[str, Make] = {}
    missing = []
    for name, makers in (("optuna", _optunas), ("ray[tune]", _rays), ("syne-tune", _syne_tunes)):
        try:
            found |= makers()
        except ImportError as error:
            missing.append(f"{name} ({error})")
    for name in ("ray.tune.schedulers", "syne_tune"):  # a library sets the levels of its own when it is imported
        logging.getLogger(name).setLevel(logging.ERROR)
    return found, missing
