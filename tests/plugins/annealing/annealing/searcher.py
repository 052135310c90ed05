"""Implement simulated annealing: each trial is a random step away from the best one so far."""

from __future__ import annotations

import math
from typing import Any

from daylight.search import Observations, Searcher, Settings, Space, sampled, stream


def make(settings: Settings, space: Space) -> Searcher:
    """Return the searcher of these settings."""
    return sampled(settings, space, _Annealing(settings.seed, float(settings.options["temperature"])))


class _Annealing:
    def __init__(self, seed: int, temperature: float) -> None:
        self._seed, self._temperature = seed, temperature

    def ask(self, number: int, seen: Observations) -> dict[str, Any]:
        """Return the hyperparameters of trial `number`, which are random until there is a result."""
        random = stream(self._seed, number)
        anywhere = [random.random() for _ in seen.encoder.dimensions]
        found = seen.telling(1)
        if found is None:
            return seen.encoder.decode(anywhere)
        (best,) = seen.points([found[1].places[0].trial])
        steps = [at + random.gauss(0.0, self._temperature / math.sqrt(number)) for at in best]
        pairs = zip(steps, anywhere, strict=True)
        return seen.encoder.decode([other if math.isnan(at) else min(max(at, 0.0), 1.0) for at, other in pairs])
