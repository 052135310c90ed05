"""Compare searches, ours and others', on recorded trainings under one simulated clock.

    python benchmarks/search_taskset.py [--seeds 2] [--workers 8] [--only NAME ...] [--at-most R] [--results FILE]

Six tasks of TaskSet, 1,000 recorded configurations of 8 hyperparameters each, 50 units a whole training (R), the
validation loss. A run goes on until it has reached the goal and has spent 64R of compute, or has no configuration left.

- 1 %: when a loss was first reported that is no more than 1 % above the lowest of any configuration at any unit, in R.
  A run that never gets there counts with the time at which it ended: the mean is then a lower bound (≥).
- top 10: when a loss was first reported that is no higher than the lowest one of the tenth best configuration.
- hits: the share of runs that came within 1 %.
- regret: how far the best loss reported so far is above the lowest there is, after 8R, 16R, 32R and 64R of compute
  (by all workers together), in the median of runs; `final` has the median and the quartiles after 64R.
- busy: the share of the workers' time in which they trained. wasted: the share of compute that was spent on
  configurations outside of the best tenth.

The line below a table has the ratio of each search's mean time to come within 1 % to that of `asha`.
`--results` is a file that keeps results, a line of JSON per run; runs that it contains are not repeated. The figures of
docs/explanation/benchmarks.md are from `--seeds 10 --workers 1 8 25`: Daylight's searches take half an hour, all
searches together some hours.
Searches that take long to propose a trial (a Gaussian process, BOHB) are only run if `--only` names them; with
`--at-most 64` a run ends after 64R of compute, which is enough for the regrets.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders.searches import Make, installed
from benchmarks.contenders.taskset import SPACE, UNITS, Task, tasks
from kernel_backend.model.search.records import Prune, Settings
from kernel_backend.model.search.space import Space
from kernel_backend.search import make, simulate

ROWS = 1000
HORIZONS = (8, 16, 32, 64)  # R of compute, by all workers together
OURS: dict[str, dict[str, Any]] = {
    "random": {"method": "random"},
    "asha, random": {"method": "asha", "sampler": "random"},
    "asha": {"method": "asha"},
    "asha --stopping": {"method": "asha", "stopping": True},
    "hyperband": {"method": "hyperband"},
}
SLOW = ("GP", "BOHB", "CQR")  # an ask takes a tenth of a second and more: only run where they are named

Run = dict[str, Any]


class Enough:
    """Search that ends once it has reached the goal and spent its budget, or has spent its maximum, in units."""

    def __init__(self, searcher: Any, goal: float, budget: float, most: float) -> None:
        self._searcher, self._goal, self._budget, self._most = searcher, goal, budget, most
        self._spent, self._found = 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._searcher, name)

    def wants(self) -> int:
        return 0 if self._over() else int(self._searcher.wants())

    def on_report(self, trial: int, unit: int, value: float) -> Any:
        self._spent += 1
        self._found |= value <= self._goal
        return Prune() if self._over() else self._searcher.on_report(trial, unit, value)

    def _over(self) -> bool:
        return self._spent >= (self._budget if self._found else self._most)


def ours(**asked: Any) -> Make:
    def of(space: Space, units: int, most: int, seed: int) -> Any:
        return make(Settings(units=units, trials=most, seed=seed, **asked), space)

    return of


def run(build: Make, task: Task, workers: int, seed: int, most: float) -> Run:
    problem = task.problem()
    searcher = Enough(build(SPACE, UNITS, ROWS, seed), task.goal, HORIZONS[-1] * UNITS, most * UNITS)
    began = time.perf_counter()
    trace = simulate(searcher, problem, workers, seed)
    took = time.perf_counter() - began
    spent = sum(trial.trained for trial in trace.trials.values())
    good = sum(trial.trained for number, trial in trace.trials.items() if problem.taken[number] in task.top_tenth)
    lowest = float(task.best.min())
    return {
        "one": _finite(trace.time_to(task.goal) / UNITS),
        "ten": _finite(trace.time_to(task.top_ten) / UNITS),
        "ended": trace.ended / UNITS,
        "regret": [_finite(trace.best_at(each * UNITS / workers) / lowest - 1) for each in HORIZONS],
        "busy": trace.utilisation,
        "wasted": 1 - good / spent,
        "trials": len(trace.trials),
        "took": took,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def results(
    contenders: dict[str, Make], workers: Sequence[int], asked: int, most: float, file: Path | None
) -> Iterator[tuple[int, str, list[Run]]]:
    """Return all runs of each contender at each number of workers; runs that are in `file` are read from there."""
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    known = {tuple(each["key"]): each for each in kept}
    for count in workers:
        for name, build in contenders.items():
            runs = []
            for seed in range(asked):
                for task in tasks():
                    key = (name, task.name, count, seed, *([most] if math.isfinite(most) else []))
                    if key not in known:
                        known[key] = {"key": key, **run(build, task, count, seed, most)}
                        if file:
                            with file.open("a") as lines:
                                lines.write(json.dumps(known[key]) + "\n")
                    runs.append(known[key])
            yield count, name, runs


def head(workers: int) -> None:
    regrets = " ".join(f"{f'at {each}R':>7}" for each in HORIZONS[:3])
    print(
        f"\n{workers} workers; mean times in R, regrets in % of the lowest loss\n{'':42} {'runs':>4} {'1 %':>8} "
        f"{'top 10':>8} {'hits':>7} {regrets} {'final [quartiles]':>22} {'busy %':>6} {'wasted':>6} {'ms/trial':>9}"
    )


def row(name: str, runs: list[Run]) -> str:
    final = [each["regret"][-1] for each in runs if each["regret"][-1] is not None]
    low, middle, high = quantiles(final, n=4)
    hits = sum(each["one"] is not None for each in runs) / len(runs)
    regrets = " ".join(f"{100 * median(_worst(each['regret'][at]) for each in runs):7.1f}" for at in range(3))
    return (
        f"{name:42} {len(runs):4} {_mean(runs, 'one'):>8} {_mean(runs, 'ten'):>8} {100 * hits:5.0f} % {regrets} "
        f"{100 * middle:7.1f} [{100 * low:5.1f} {100 * high:6.1f}] {100 * fmean(_all(runs, 'busy')):6.1f} "
        f"{100 * fmean(_all(runs, 'wasted')):6.1f} {fmean(_all(runs, 'took')) / fmean(_all(runs, 'trials')) * 1e3:9.2f}"
    )


def _worst(value: float | None) -> float:
    return math.inf if value is None else value


def _all(runs: list[Run], name: str) -> list[float]:
    return [each[name] for each in runs]


def mean_time(runs: list[Run], name: str) -> float:
    """Return the mean time to the goal, in R; a run that never reached it counts with its end."""
    return fmean(each["ended"] if each[name] is None else each[name] for each in runs)


def _mean(runs: list[Run], name: str) -> str:
    missed = any(each[name] is None for each in runs)
    return f"{'≥' if missed else ''}{mean_time(runs, name):.2f}R"


def against(found: dict[str, list[Run]]) -> str:
    """Return a line of ratios: each other search's time by ours, on the runs that both have."""
    ours = {tuple(each["key"][1:4]): each for each in found.get("asha", [])}
    ratios = []
    for name, runs in found.items():
        same = [each for each in runs if tuple(each["key"][1:4]) in ours]
        if name != "asha" and same:
            mine = mean_time([ours[tuple(each["key"][1:4])] for each in same], "one")
            ratios.append(f"{name} {mean_time(same, 'one') / mine:.1f}x")
    return ", ".join(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[8])
    parser.add_argument("--only", nargs="+", default=[], help="contenders whose names begin so")
    parser.add_argument("--at-most", type=float, default=math.inf, help="R of compute after which a run gives up")
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    peers, missing = installed()
    contenders: dict[str, Callable[..., Any]] = {name: ours(**each) for name, each in OURS.items()} | peers
    named = tuple(asked.only)
    wanted = {
        name: each
        for name, each in contenders.items()
        if (name.startswith(named) if named else not any(part in name for part in SLOW))
    }
    tables: dict[int, dict[str, list[Run]]] = {workers: {} for workers in asked.workers}
    for workers, name, runs in results(wanted, asked.workers, asked.seeds, asked.at_most, asked.results):
        if not tables[workers]:
            head(workers)
        tables[workers][name] = runs
        print(row(name, runs), flush=True)
        if len(tables[workers]) == len(wanted):
            print(against(tables[workers]))
    first, last = tables[min(asked.workers)], tables[max(asked.workers)]
    if "asha" in first and first is not last:
        faster = mean_time(first["asha"], "one") / mean_time(last["asha"], "one")
        print(f"\nasha with {max(asked.workers)} workers is {faster:.1f}x as fast as with {min(asked.workers)}")
    for each in missing:
        print(f"not installed: {each}")


if __name__ == "__main__":
    main()
