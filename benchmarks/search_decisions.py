"""Measure a search's decision after very many trials, and its restart.

    python benchmarks/search_decisions.py [--trials 10000] [--events 100000]

Eight logarithmic hyperparameters, R = 256. Times are medians of the last 1,000 calls before the given number of
trials, beside Optuna's TPE (`study.ask`, in memory and at its defaults) with as many finished trials. The log that is
replayed has a report for each unit; it ends in the same next decision, which is checked.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.records import (
    Continue,
    Create,
    Happening,
    LogEntry,
    ParamsAssigned,
    Reported,
    Settings,
    Vacancy,
)
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.search import make, simulate
from kernel_backend.search.log import apply_event, fold
from kernel_backend.search.simulation.problems import Trained

DOMAIN = Range(low=1e-4, high=1.0, scale="log")
SPACE = Space(parameters=tuple(Parameter(name=f"p{at}", domain=DOMAIN) for at in range(8)))
LAST = 1000


def settings(sampler: str) -> Settings:
    return Settings.model_validate({"method": "asha", "units": 256, "max_time": 1e9, "sampler": sampler})


def ours(sampler: str, trials: int) -> dict[str, float]:
    """Return the microseconds of each kind of call."""
    search, random = make(settings(sampler), SPACE), np.random.default_rng(0)
    times: dict[str, list[float]] = {"create": [], "resume": [], "report": []}
    made = 0

    def timed(call: Any, *arguments: Any) -> tuple[Any, float]:
        began = time.perf_counter()
        return call(*arguments), 1e6 * (time.perf_counter() - began)

    while made < trials:
        decision, took = timed(lambda: search.wants() and search.on_slot())
        times[decision.type].append(took)
        made += isinstance(decision, Create)
        until = decision.until
        while True:
            verdict, took = timed(search.on_report, decision.trial, until, float(random.random()))
            times["report"].append(took)
            if not isinstance(verdict, Continue):
                break
            until = verdict.until
    return {kind: median(each[-LAST:]) for kind, each in times.items()}


def optuna_ask(trials: int) -> float:
    """Return the microseconds of Optuna's `ask` after that many finished trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {
        each.name: optuna.distributions.FloatDistribution(1e-4, 1.0, log=True) for each in SPACE.parameters
    }
    study, random = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0)), np.random.default_rng(0)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: float(10 ** random.uniform(-4, 0)) for name in distributions},
                distributions=distributions,
                value=float(random.random()),
            )
            for _ in range(trials)
        ]
    )
    times = []
    for _ in range(5):
        began = time.perf_counter()
        study.tell(study.ask(distributions), 0.5)
        times.append(1e6 * (time.perf_counter() - began))
    return median(times)


class Written:
    """Log a search's events as the service logs them, until there are `events` of them."""

    def __init__(self, searcher: Any, events: int) -> None:
        self._searcher, self._events = searcher, events
        self.log: list[LogEntry] = []

    def wants(self) -> int:
        return int(self._searcher.wants()) if len(self.log) < self._events else 0

    def _happen(self, event: Happening) -> Any:
        decision = apply_event(self._searcher, event)
        self.log.append(LogEntry(number=len(self.log) + 1, at=0.0, event=event, decision=decision))
        return decision

    def on_slot(self) -> Any:
        return self._happen(Vacancy())

    def on_report(self, trial: int, unit: int, value: float) -> Any:
        return self._happen(Reported(trial=trial, unit=unit, value=value))

    def told(self, trial: int, params: dict[str, Any]) -> None:
        self._happen(ParamsAssigned(trial=trial, params=params))


def replay(events: int) -> tuple[int, float]:
    """Rebuild a search from its log; return the number of events and the seconds taken."""
    written = Written(make(settings("random"), SPACE), events)
    simulate(written, Trained(256), 8)  # type: ignore[arg-type]
    began = time.perf_counter()
    search = fold(settings("random"), SPACE, written.log)
    took = time.perf_counter() - began
    assert search.on_slot() == written._searcher.on_slot()
    return len(written.log), took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=100_000)
    asked = parser.parse_args()
    for sampler in ("random", "kde"):
        found = ours(sampler, asked.trials)
        print(f"{sampler:8}" + "  ".join(f"{kind} {took:.0f} us" for kind, took in found.items()))
    for trials in (asked.trials // 10, asked.trials):
        print(f"Optuna TPE, ask after {trials:,} trials: {optuna_ask(trials) / 1e3:.1f} ms")
    events, took = replay(asked.events)
    print(f"{events:,} events replayed in {took:.2f} s, and the next decision is the same")


if __name__ == "__main__":
    main()
