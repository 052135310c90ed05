"""Sample where good trials are dense and bad ones are not: kernel densities, after BOHB (Falkner et al., ICML 2018)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernel_backend.model.record import Value
from kernel_backend.search.encoding import Dimension
from kernel_backend.search.observations import Observations
from kernel_backend.search.rungs import WORST, RankKey
from kernel_backend.search.samplers.base import stream

Array = NDArray[np.float64]

GOOD = 0.15  # fraction of results that count as good
ANYWHERE = 1 / 3  # fraction of trials drawn from the whole space, so that no region is excluded
CANDIDATES = 64
WIDER = 3.0  # factor by which candidates are drawn from wider kernels than those that score them
LEAST_WIDTH = 1e-3  # minimum bandwidth, used if all points agree
MOST = 256  # points per density: more cost time and improve nothing


class KdeSampler:
    """Sampler that draws candidates near good trials, and proposes the most promising one.

    That is the candidate at which the density of good trials, divided by that of bad trials, is highest.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """Return the hyperparameters of proposal `number`: random at first, and later for a third of the proposals."""
        random, dimensions = stream(self._seed, number), seen.encoder.dimensions
        point, told = [random.random() for _ in dimensions], random.random() >= ANYWHERE
        sides = split(seen) if told else None
        if sides is not None:
            point = _propose(*sides, dimensions, np.random.default_rng(random.getrandbits(64))).tolist()
        return seen.encoder.decode(point)


def split(seen: Observations) -> tuple[Array, Array] | None:
    """Return the points of good trials and of bad ones at the highest rung with enough results.

    None without such a rung. Trials that are training are treated as bad, so that concurrent proposals differ.
    """
    found = seen.telling(max(10, len(seen.encoder.dimensions) + 1))
    if found is None:
        return None
    ranking = found[1]
    finite = bisect_left(ranking.places, (WORST,))
    count = min(max(3, round(GOOD * len(ranking))), finite)  # a diverged trial is never good
    others = [trial for trial in seen.training if trial not in ranking]
    good, bad = _thinned(ranking.places[:count]), _thinned(ranking.places[count:]) + others[-MOST:]
    return (seen.points(good), seen.points(bad)) if good else None


def _thinned(places: Sequence[RankKey]) -> list[int]:
    """Return at most `MOST` of the trials, evenly spaced by rank."""
    step = max(1, -(-len(places) // MOST))
    return [place.trial for place in places[::step]]


def _propose(good: Array, bad: Array, dimensions: Sequence[Dimension], random: np.random.Generator) -> Array:
    choices = np.array([dimension.choices for dimension in dimensions])
    around = _drawn(good[random.integers(len(good), size=CANDIDATES)], widths(good, choices), choices, random)
    score = log_density(around, good, choices) - log_density(around, bad, choices)
    return np.asarray(around[int(score.argmax())])


def _drawn(centres: Array, width: Array, choices: NDArray[np.int64], random: np.random.Generator) -> Array:
    """Return a random point near each centre; coordinates that are inactive (NaN) in a centre are uniformly random.

    `width` has the bandwidth and `choices` the number of choices (0: numeric) of each coordinate.
    """
    anywhere = random.random(centres.shape)
    moved = centres + random.normal(size=centres.shape) * width * WIDER
    inside = 1.0 - np.abs(1.0 - np.mod(moved, 2.0))  # reflected at 0 and 1, so that points do not accumulate there
    jump = random.random(centres.shape) < np.minimum(width * WIDER, 1.0)
    near = np.where(choices > 0, np.where(jump, anywhere, centres), inside)
    return np.where(np.isnan(centres), anywhere, near)


def widths(points: Array, choices: NDArray[np.int64]) -> Array:
    """Return the bandwidth of the kernels in each dimension by Scott's rule, shape [d].

    `points` has shape [n, d], and `choices` the number of choices of each dimension (0: numeric). For a choice the
    bandwidth is the probability that a kernel gives to all other values together.
    """
    dimensions = points.shape[1]
    present = ~np.isnan(points)
    number = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, points, 0.0).sum(axis=0) / number
    spread = np.sqrt(np.where(present, (points - mean) ** 2, 0.0).sum(axis=0) / number)
    scott = np.maximum(number, 2) ** (-1.0 / (dimensions + 4))
    width = np.where(number < 2, 0.25, spread) * scott
    least, most = np.where(choices > 0, 0.05, LEAST_WIDTH), np.where(choices > 0, 0.9, 1.0)
    return np.asarray(np.clip(width, least, most))


def log_density(at: Array, points: Array, choices: NDArray[np.int64]) -> Array:
    """Return the log of the kernel density estimate of `points` [n, d] at each row of `at` [m, d], shape [m].

    The kernel is a product: Gaussian for numbers, Aitchison-Aitken for choices, 1 for inactive coordinates.
    """
    width = widths(points, choices)
    numeric, chosen = choices == 0, choices > 0
    apart = (at[:, None, numeric] - points[None, :, numeric]) / width[numeric]
    kernel = -0.5 * apart**2 - np.log(width[numeric] * np.sqrt(2 * np.pi))
    total = np.where(np.isnan(kernel), 0.0, kernel).sum(axis=2)
    if chosen.any():
        count = choices[chosen]
        other = width[chosen] * (count - 1) / count
        places = np.floor(np.minimum(at[:, chosen], 1 - 1e-12) * count)[:, None]
        equal = places == np.floor(points[:, chosen] * count)[None]
        mass = np.where(equal, 1 - other, other / np.maximum(count - 1, 1))
        total += np.where(np.isnan(points[:, chosen])[None], 0.0, np.log(mass * count)).sum(axis=2)
    highest = total.max(axis=1)
    return np.asarray(highest + np.log(np.exp(total - highest[:, None]).mean(axis=1)))
