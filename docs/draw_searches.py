"""Draw the pictures of `explanation/search.md`: searches of recorded trainings (benchmarks/data) on a simulated clock.

python docs/draw_searches.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders.taskset import SPACE, UNITS, Task, tasks
from kernel_backend.model.search.records import Settings
from kernel_backend.search import Trace, make, simulate

IMAGES = Path(__file__).with_name("images")
WORKERS, LENGTH, SEEDS = 8, 6, 10  # LENGTH in whole trainings (R)
GREY, BLUE = "#9aa0a6", "#1a73e8"
METHODS: dict[str, dict[str, Any]] = {
    "random": {"method": "random"},
    "hyperband": {"method": "hyperband"},
    "asha --sampler random": {"method": "asha", "sampler": "random"},
    "asha": {"method": "asha"},
}
COLOURS = {"random": GREY, "hyperband": "#e8710a", "asha --sampler random": "#7cacf8", "asha": BLUE, "pbt": "#1e8e3e"}


def trace(task: Task, seed: int, asked: dict[str, Any], workers: int = WORKERS, length: float = LENGTH) -> Trace:
    """Run one simulated search, and record its trials."""
    settings = Settings(units=UNITS, trials=1000, max_time=1e9, seed=seed, **asked)
    return simulate(make(settings, SPACE), task.problem(), workers, seed, max_time=length * UNITS)


def lives(axes: Axes, found: Trace, title: str) -> None:
    """Draw the units that each trial trained; trials that were trained to the end are in colour."""
    trials = [trial for trial in found.trials.values() if trial.values]
    lines = [[(trial.number, trial.reached - len(trial.values)), (trial.number, trial.reached)] for trial in trials]
    colours = [BLUE if trial.reached == UNITS else GREY for trial in trials]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=max(0.8, 140 / max(len(lines), 1))))
    axes.set(xlim=(0, len(lines) + 1), ylim=(0, UNITS * 1.04), title=f"{title}: {len(lines)} trials")
    axes.title.set_fontsize(10)


def draw_lives(task: Task) -> None:
    """Draw the trials of four search methods, given the same compute."""
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.7), sharey=True, layout="constrained")
    asked = {**METHODS, "pbt": {"method": "pbt", "population": 16}}
    for each, name in zip(axes, ("random", "hyperband", "asha", "pbt"), strict=True):
        lives(each, trace(task, 0, asked[name], length=2), name)
        each.set_xlabel("trial")
    axes[0].set_ylabel("units trained")
    _save(figure, "search-lives.png")


def draw_progress() -> None:
    """Draw the best loss over time, as the distance from the lowest there is, in the median of seeds and tasks."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    times = np.linspace(0.02, LENGTH, 200)
    for name, asked in METHODS.items():
        runs = [
            [found.best_at(at * UNITS) / float(task.best.min()) - 1 for at in times]
            for task in tasks()
            for found in (trace(task, seed, asked) for seed in range(SEEDS))
        ]
        middle = [100 * median(np.nan_to_num(column, nan=np.inf)) for column in np.array(runs).T]
        axes.plot(times, middle, label=name, color=COLOURS[name], linewidth=2)
    axes.set(yscale="log", xlabel=f"time on {WORKERS} slots, in whole trainings", ylabel="% above the lowest loss")
    axes.set(ylim=(0.3, 200), xlim=(0, LENGTH))
    axes.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
    axes.legend(frameon=False)
    _save(figure, "search-progress.png")


def _save(figure: Any, name: str) -> None:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / name, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    draw_lives(tasks()[3])
    draw_progress()
