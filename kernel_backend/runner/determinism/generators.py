"""Find random generators that a dataset or a model holds, and reseed them like the global ones.

A generator inside an object keeps its state from draw to draw. After a restart this state would differ, and each loader
worker has a copy that would draw the same numbers. So such a generator is seeded anew before each sample and step, by
the number of that sample or step.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any

import torch

from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.reachability import held_by

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

Seeder = Callable[[int], Any]


class OwnGenerators:
    """Random generators that some objects, such as datasets or models, hold."""

    def __init__(self, **objects: Any) -> None:
        """Find the generators in `objects`, which are given by name.

        Each is identified by its path, such as `model.noise`, which is the same in every process.
        """
        self._objects = objects
        self._found: dict[str, Any] = {}
        self._seeders: dict[str, Seeder] = {}
        self.look()

    def __bool__(self) -> bool:
        """Return True if the objects hold any generators."""
        return bool(self._found)

    @property
    def ways(self) -> list[str]:
        """Return the paths of the generators that were found, such as `model.noise`."""
        return list(self._found)

    def look(self) -> bool:
        """Search the objects once more; return True if they hold other generators than at the last search."""
        before, self._found = self._found, dict(_found_in(self._objects))
        self._seeders = {way: _seeder(each) for way, each in self._found.items()}
        return {way: id(each) for way, each in before.items()} != {way: id(each) for way, each in self._found.items()}

    def seed(self, value: int) -> None:
        """Seed each generator with a number derived from `value` and the generator's path."""
        for way, seeder in self._seeders.items():
            seeder(seeds.mix(value, way))

    def rows(self, seed: int, tag: str) -> list[tuple[Seeder, seeds.Numbers]]:
        """Return, for each generator, a function that seeds it, and its seeds for all samples or steps of a training.

        `tag` is mixed into the seeds, so that different sequences of samples or steps get different numbers.
        """
        return [(seeder, seeds.Numbers(seed, tag, way)) for way, seeder in self._seeders.items()]


class GeneratorDraws:
    """Seeder for a sequence of samples or steps: it seeds the global generators and those that an object holds.

    The seeds follow from the number of the sample or step.
    """

    def __init__(self, obj: Any, seed: int, tag: str) -> None:
        """Set up the seeds; generators that `obj` holds are unknown until the first `look`.

        `tag` is mixed into the seeds, so that different sequences of samples or steps get different numbers.
        """
        self._obj, self._seed, self._tag = obj, seed, tag
        self._main = seeds.Draws(seed, tag)
        self._kept: OwnGenerators | None = None
        self._rows: list[tuple[Seeder, seeds.Numbers]] = []
        # Seeds all generators for a position, but for those given as idle.
        self.at: Callable[..., None] = self._main.at

    @property
    def keeps(self) -> bool:
        """Return True if the last `look` found generators that the object holds."""
        return bool(self._rows)

    def look(self) -> bool:
        """Search for generators that the object holds; return True if the set has changed since the last search."""
        if self._kept is None:
            self._kept = OwnGenerators(it=self._obj)
            changed = bool(self._kept)
        else:
            changed = self._kept.look()
        self._rows = self._kept.rows(self._seed, self._tag)
        self.at = self._at if self._rows else self._main.at
        return changed

    def _at(self, position: int, idle: Set[str] = frozenset()) -> None:
        self._main.at(position, idle)
        for seeder, numbers in self._rows:
            seeder(numbers.at(position))


def _found_in(objects: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and the state-holding object of each random generator that the objects hold, each once.

    Two numpy generators that share a state count as one.
    """
    met, ways = _main_ones(), set[str]()
    for way, obj in held_by(objects):
        one = _state_of(obj)
        if one is not None and id(one) not in met:
            met.add(id(one))
            while way in ways:  # e.g. two members of a set have the same path
                way += "'"
            ways.add(way)
            yield way, one


def _main_ones() -> set[int]:
    """Return the `id()` of the global generators of Python, numpy and torch, which are seeded elsewhere."""
    cuda = torch.cuda.default_generators if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    main = [random.random.__self__, torch.default_generator, *cuda]  # type: ignore[attr-defined]
    if np is not None:
        main.append(np.random.random_sample.__self__)  # type: ignore[attr-defined]
    return {id(each) for each in main}


def _state_of(obj: Any) -> Any:
    """Return the object if it is a random generator (for numpy's newer ones, its bit generator), else None."""
    kind = type(obj)
    if issubclass(kind, random.Random):
        return None if issubclass(kind, random.SystemRandom) else obj
    if np is not None and issubclass(kind, np.random.Generator):
        return obj.bit_generator
    numpys = (np.random.RandomState, np.random.BitGenerator) if np is not None else ()
    return obj if issubclass(kind, (torch.Generator, *numpys)) else None


def _seeder(generator: Any) -> Seeder:
    """Return a function that seeds a generator in place with a number below 2**63, in about 3 microseconds."""
    if isinstance(generator, torch.Generator):
        return generator.manual_seed
    if isinstance(generator, random.Random):
        return partial(random.Random.seed, generator)
    if isinstance(generator, np.random.RandomState):
        of_twister = generator.get_state(legacy=False)["bit_generator"] == "MT19937"
        return partial(_seed_legacy if of_twister else _seed_odd_legacy, generator)
    quick = type(generator) in (np.random.PCG64, np.random.PCG64DXSM)
    return partial(_seed_pcg if quick else _seed_numpys, generator)


def _seed_legacy(generator: np.random.RandomState, value: int) -> None:
    np.random.RandomState.seed(generator, seeds.for_numpy(value))


def _seed_odd_legacy(generator: np.random.RandomState, value: int) -> None:
    """Seed a legacy RandomState whose bit generator is not MT19937."""
    kind = generator.get_state(legacy=False)["bit_generator"]
    generator.set_state(getattr(np.random, kind)(value).state | {"has_gauss": 0, "gauss": 0.0})


def _seed_numpys(generator: np.random.BitGenerator, value: int) -> None:
    generator.state = type(generator)(value).state


def _seed_pcg(generator: Any, value: int) -> None:
    """Set a PCG64 generator's state directly, six times as fast as numpy; the increment must be odd (O'Neill 2014)."""
    bits = hashlib.blake2b(value.to_bytes(8, "little"), digest_size=32).digest()
    words = {"state": int.from_bytes(bits[:16], "little"), "inc": int.from_bytes(bits[16:], "little") | 1}
    generator.state = {"bit_generator": type(generator).__name__, "state": words, "has_uint32": 0, "uinteger": 0}
