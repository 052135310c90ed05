"""Compare each search with random search by the seconds of real training until an equally good result.

    python benchmarks/search_real.py [--trials 1000] [--draws 4000] [--seeds 10] [--table FILE] [--only NAME ...]

A small network on the digits with 8 hyperparameters; a whole training (R) has 256 units of 2 steps each, so R/r = 256.
First `--draws` random configurations are trained to their end. The goal is 1 % above the lowest validation loss that
any of the first `--trials` ever had. The time of random search is the time of all these trainings divided by the number
of those that reached the goal, with the exact 95 % interval of that number (Poisson). Then every search trains, one
trial at a time, until it has reached the goal or has spent `--limit` seconds. Counted is the CPU time of the one thread
within training and validation (run nothing else: other load lengthens even CPU time by half); the CPU time of the
search's decisions is printed separately.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from scipy.stats import chi2  # type: ignore[import-untyped]
from sklearn.datasets import load_digits
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders.searches import installed
from kernel_backend.model.search.records import Settings
from kernel_backend.search import make, simulate
from kernel_backend.spec.assignments import parse_line

UNITS, STEPS = 256, 2
LINE = """
    lr=1e-4..3:log  momentum=1e-3..1:log  weight_decay=1e-7..1:log  decay=1e-2..1:log
    width=8..256:log  dropout=0..0.8  smoothing=1e-6..1:log  batch=8..256:log2
"""
SPACE = parse_line(LINE.split()).space
OURS: dict[str, dict[str, Any]] = {
    "asha": {"method": "asha", "max_time": 1e9},
    "asha, random": {"method": "asha", "sampler": "random", "max_time": 1e9},
    "hyperband": {"method": "hyperband", "max_time": 1e9},
}


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    return x[:1000], y[:1000], x[1000:], y[1000:]


DATA = digits()


class Training:
    """Train one trial by plain SGD, with a learning rate that falls to `decay` of its start over a whole training."""

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        width = int(params["width"])
        self.model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(params["dropout"]), nn.Linear(width, 10))
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), params["lr"], momentum=1 - params["momentum"], weight_decay=params["weight_decay"]
        )
        total = UNITS * STEPS
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: params["decay"] ** (step / total)
        )
        self.loss = nn.CrossEntropyLoss(label_smoothing=params["smoothing"])
        self.batch = int(params["batch"])
        self.random = torch.Generator().manual_seed(seed)

    def unit(self) -> float:
        """Train one unit; return the validation loss after it."""
        x, y, held_x, held_y = DATA
        self.model.train()
        for _ in range(STEPS):
            chosen = torch.randint(len(x), (self.batch,), generator=self.random)
            self.optimizer.zero_grad()
            self.loss(self.model(x[chosen]), y[chosen]).backward()
            self.optimizer.step()
            self.schedule.step()
        self.model.eval()
        with torch.no_grad():
            return float(nn.functional.cross_entropy(self.model(held_x), held_y))


class Real:
    """Problem whose trials are trained when their next value is requested; `spent` is the seconds of training."""

    units = UNITS

    def __init__(self, seed: int) -> None:
        self._seed, self._trials, self.spent = seed, dict[int, Training](), 0.0

    def begin(self, trial: int, params: Mapping[str, Any], parent: int | None) -> dict[str, Any]:
        self._trials[trial] = Training(params, self._seed * 100_000 + trial)
        return dict(params)

    def value(self, trial: int, unit: int) -> float:
        began = time.thread_time()
        found = self._trials[trial].unit()
        self.spent += time.thread_time() - began
        return found

    def seconds(self, trial: int) -> float:
        return 1.0


class Bounded:
    """Search that ends when its trainings have taken a given time."""

    def __init__(self, searcher: Any, problem: Real, limit: float) -> None:
        self._searcher, self._problem, self._limit = searcher, problem, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._searcher, name)

    def wants(self) -> int:
        return 0 if self._problem.spent > self._limit else int(self._searcher.wants())


def table(trials: int, file: Path | None) -> list[dict[str, Any]]:
    """Train random configurations to their end, or read them from `file`; return each one's seconds and losses."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    sampler = make(Settings(method="random", units=UNITS, trials=trials, seed=2**31), SPACE)
    for number in range(1, trials + 1):
        decision = sampler.on_slot()
        if decision is None or number <= len(known):
            continue
        training, began = Training(decision.params, number), time.thread_time()  # type: ignore[union-attr]
        losses = [training.unit() for _ in range(UNITS)]
        known.append({"seconds": time.thread_time() - began, "losses": losses})
        if file:
            with file.open("a") as lines:
                lines.write(json.dumps(known[-1]) + "\n")
    return known[:trials]


class Blind(NamedTuple):
    """Result of random search: how many trainings reach the goal, and the mean seconds until one does.

    `least` and `most` are the 95 % interval of these seconds.
    """

    hits: int
    seconds: float
    least: float
    most: float


def random_search(known: list[dict[str, Any]], goal: float) -> Blind:
    """Return the result of random search on the trainings `known`, each ended as soon as it reaches the goal."""
    spent, hits = 0.0, 0
    for each in known:
        reached = next((at for at, loss in enumerate(each["losses"], 1) if loss <= goal), None)
        hits += reached is not None
        spent += each["seconds"] * (reached or UNITS) / UNITS
    fewest = chi2.ppf(0.025, 2 * hits) / 2 if hits else 0.0
    most = chi2.ppf(0.975, 2 * hits + 2) / 2
    return Blind(hits, spent / hits if hits else math.inf, spent / most, spent / fewest if fewest else math.inf)


def run(build: Any, goal: float, seed: int, limit: float) -> dict[str, float]:
    problem = Real(seed)
    began = time.thread_time()
    trace = simulate(Bounded(build(seed), problem, limit), problem, 1, seed, goal=goal)
    took = time.thread_time() - began
    found = trace.time_to(goal) < math.inf
    return {"seconds": problem.spent, "found": found, "trials": len(trace.trials), "deciding": took - problem.spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of training, after which a run gives up")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--table", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    known = table(max(asked.draws, asked.trials), asked.table)
    finite = [min(filter(math.isfinite, each["losses"]), default=math.inf) for each in known]
    goal, whole = 1.01 * min(finite[: asked.trials]), fmean(each["seconds"] for each in known)
    blind = random_search(known, goal)
    print(
        f"{len(known)} random configurations, R = {whole:.2f} s; goal {goal:.4f}, which {blind.hits} of them reach\n"
        f"random search: {blind.seconds:.0f} s ({blind.seconds / whole:.0f}R; "
        f"95 % of {blind.least:.0f} to {blind.most:.0f} s)",
        flush=True,
    )

    def ours(asked_for: dict[str, Any]) -> Any:
        return lambda seed: make(Settings(units=UNITS, trials=100_000, seed=seed, **asked_for), SPACE)

    def theirs(build: Any) -> Any:
        return lambda seed: build(SPACE, UNITS, 100_000, seed)

    peers, missing = installed()
    contenders = {name: ours(each) for name, each in OURS.items()} | {
        name: theirs(each) for name, each in peers.items()
    }
    for name, build in contenders.items():
        if asked.only and not name.startswith(tuple(asked.only)):
            continue
        runs = [run(build, goal, seed, asked.limit) for seed in range(asked.seeds)]
        seconds = [each["seconds"] for each in runs]
        hits = sum(each["found"] for each in runs)
        least = "≥" if hits < len(runs) else ""
        print(
            f"{name:30} found by {hits} of {len(runs)}: mean {least}{fmean(seconds):.1f} s, "
            f"median {median(seconds):.1f} s (least {min(seconds):.1f}, most {max(seconds):.1f}), "
            f"{fmean(each['trials'] for each in runs):.0f} trials, deciding "
            f"{fmean(each['deciding'] for each in runs):.2f} s; "
            f"random takes {blind.seconds / fmean(seconds):.0f}x as long "
            f"({blind.least / fmean(seconds):.0f} to {blind.most / fmean(seconds):.0f})",
            flush=True,
        )
    for each in missing:
        print(f"not installed: {each}")


if __name__ == "__main__":
    main()
