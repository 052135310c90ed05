"""Offer recorded trainings as problems of a search: 6 tasks of TaskSet, 1,000 configurations each.

See data/README.md.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.search import TableProblem

FILE = Path(__file__).parents[1] / "data" / "taskset_adam8p_6tasks.npz"
UNITS = 50  # R: evaluations of the network in a whole training
VALID = 1

# The ranges that the configurations were drawn from; where a beta is near 1, how near is what counts.
SPACE = Space(
    parameters=tuple(
        Parameter(name=name, domain=Range(low=low, high=high, scale="log"))
        for name, low, high in (
            ("learning_rate", 1e-8, 1e1),
            ("one_minus_beta1", 1e-4, 1e0),
            ("one_minus_beta2", 1e-6, 1e0),
            ("epsilon", 1e-10, 1e3),
            ("l1", 1e-8, 1e1),
            ("l2", 1e-8, 1e1),
            ("linear_decay", 1e-7, 1e-4),
            ("exponential_decay", 1e-6, 1e-3),
        )
    )
)


class Task(NamedTuple):
    """Recorded trainings of one task; lower losses are better."""

    name: str
    configs: NDArray[np.float64]  # 1,000 x 8
    curves: NDArray[np.float64]  # 1,000 x 50: the validation loss after units 1 to 50; NaN: it diverged

    @property
    def best(self) -> NDArray[np.float64]:
        """Return the lowest loss of each configuration at any unit, infinite for a configuration that has none."""
        return np.where(np.isnan(self.curves), np.inf, self.curves).min(axis=1)

    @property
    def goal(self) -> float:
        """Return the highest loss that is within 1 % of the lowest loss of any configuration at any unit."""
        return 1.01 * float(self.best.min())

    @property
    def top_ten(self) -> float:
        """Return the tenth best configuration's lowest loss; a run that reports it has found one of the ten best."""
        return float(np.sort(self.best)[9])

    @property
    def top_tenth(self) -> set[int]:
        """Return the configurations of the best tenth."""
        return set(np.argsort(self.best)[: len(self.best) // 10].tolist())

    def problem(self) -> TableProblem:
        """Return the table as a new problem, of which no row is taken."""
        names = [each.name for each in SPACE.parameters]
        return TableProblem(names, self.configs, self.curves, SPACE)


@cache
def tasks() -> list[Task]:
    """Return all six tasks."""
    with np.load(FILE, allow_pickle=False) as file:
        names, configs, curves = file["names"], file["configs"].copy(), file["curves"]
    configs[:, :, 1:3] = 1 - configs[:, :, 1:3]
    lows, highs = zip(*((each.domain.low, each.domain.high) for each in SPACE.parameters), strict=True)
    np.clip(configs, lows, highs, out=configs)  # 1 - (1 - 1e-6) is a little less than 1e-6
    return [
        Task(_short(str(name)), each, found[:, VALID, 1:].astype(float))
        for name, each, found in zip(names, configs, curves, strict=True)
    ]


def _short(name: str) -> str:
    return name.removeprefix("FixedTextRNNClassification_imdb_")
