"""Build the brackets (ladders of rungs) of ASHA and Hyperband, and a bracket for trials that improve late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kernel_backend.search.rungs import Rung

LATE_BLOOMERS = 0.1  # fraction of all training for trials that are not compared early


class Bracket:
    """Ladder of rungs, which are training lengths at which trials are compared, and only the best train on.

    `weight` is the fraction of new trials that start in this bracket.
    """

    def __init__(self, units: Sequence[int], weight: float) -> None:
        self.rungs = [Rung(unit) for unit in units]
        self.weight = weight
        self.begun = 0

    def above(self, unit: int) -> Rung:
        """Return the lowest rung above `unit`; `unit` must be below the top rung."""
        return next(rung for rung in self.rungs if rung.unit > unit)

    def below(self, unit: int) -> Rung:
        """Return the highest rung at or below `unit`; `unit` must not be below the first rung."""
        return next(rung for rung in reversed(self.rungs) if rung.unit <= unit)

    def leave(self, trial: int, unit: int) -> None:
        """Exclude a trial from promotion out of any rung up to and including `unit`."""
        for rung in self.rungs:
            if rung.unit <= unit:
                rung.leave(trial)


def cost(units: Sequence[int], eta: int) -> float:
    """Return the mean number of units that a trial trains in a bracket: r + sum of (L_k - L_(k-1)) / eta^k.

    `units` are the rungs L_k, of which r is the first.
    """
    steps = zip([0, *units], units, strict=False)
    return sum(((upper - lower) / float(eta**k) for k, (lower, upper) in enumerate(steps)), 0.0)


def with_late_bloomers(units: Sequence[int], eta: int) -> list[Bracket]:
    """Return two brackets: that of ASHA, and one with only its two highest rungs, which gets a tenth of all training.

    The second one protects trials that learn slowly at first, and so would fail every early comparison. With fewer than
    three rungs, there is only the bracket of ASHA. `units` are the rungs, and one of `eta` trials is promoted at each.
    """
    late = units[-2:]
    if len(units) < 3:
        return [Bracket(units, 1.0)]
    weights = (1 - LATE_BLOOMERS) / cost(units, eta), LATE_BLOOMERS / cost(late, eta)
    return [Bracket(units, weights[0] / sum(weights)), Bracket(late, weights[1] / sum(weights))]


def hyperband(units: Sequence[int], eta: int) -> list[Bracket]:
    """Return all brackets of Hyperband, to be run concurrently.

    The bracket of s + 1 rungs has n = ceil((s_max + 1) / (s + 1) * eta^s) trials (Li et al., JMLR 2018). n is computed
    in integers: rounding errors of floats would lose a bracket if R/r is a power of eta.
    """
    most = len(units)
    counts = {s: -(-most * eta**s // (s + 1)) for s in range(most)}
    return [Bracket(units[most - 1 - s :], counts[s]) for s in reversed(range(most))]


def graded(units: Sequence[int], eta: int, mode: Literal["standard", "conservative"]) -> list[Bracket]:
    """Return the brackets of a search, those with most rungs first, each with its share of the trials.

    `units` are the lengths of training at the rungs, in ascending order; a bracket uses the last 1, 2, ... of them.
    `mode` conservative uses all these brackets, standard the half that have more rungs. A bracket's number of trials is
    proportional to eta^(rungs - 1) / rungs.
    """
    most = len(units)
    fewest = (most - 1) // 2 + 1 if mode == "standard" else 1
    return [Bracket(units[most - rungs :], eta ** (rungs - 1) / rungs) for rungs in range(most, fewest - 1, -1)]
