"""Random generators that a dataset or a model keeps for itself: found, and seeded anew as the main ones are.

A generator that lives in an object goes on from draw to draw. After a kill it would stand elsewhere, and of two loader
workers each has a copy, which draws the same. So before each sample and each step it is seeded from its place, too.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
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
    """The random generators that some things keep for themselves."""

    def __init__(self, **things: Any) -> None:
        """Look for them; a generator is known by the way to it, such as `model.noise`, in every process."""
        self._things = things
        self._found: dict[str, Any] = {}
        self._seeders: dict[str, Seeder] = {}
        self.look()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._found)

    @property
    def ways(self) -> list[str]:
        """The way to each of them."""
        return list(self._found)

    def look(self) -> bool:
        """Look again; whether there are others than before."""
        before, self._found = self._found, dict(_found_in(self._things))
        self._seeders = {way: _seeder(each) for way, each in self._found.items()}
        return {way: id(each) for way, each in before.items()} != {way: id(each) for way, each in self._found.items()}

    def seed(self, value: int) -> None:
        """Seed each with a number of its own that follows from `value` and the way to it."""
        for way, seeder in self._seeders.items():
            seeder(seeds.mix(value, way))

    def rows(self, seed: int, tag: str) -> list[tuple[Seeder, seeds.Numbers]]:
        """What seeds each of them, and its numbers for every position of a row."""
        return [(seeder, seeds.Numbers(seed, tag, way)) for way, seeder in self._seeders.items()]


class GeneratorDraws:
    """Random numbers of its own for every position of a row: in the main generators and in those that a thing keeps."""

    def __init__(self, thing: Any, seed: int, tag: str) -> None:
        """Those that it keeps are not known before the first `look`."""
        self._thing, self._seed, self._tag = thing, seed, tag
        self._main = seeds.Draws(seed, tag)
        self._kept: OwnGenerators | None = None
        self._rows: list[tuple[Seeder, seeds.Numbers]] = []
        self.at: Callable[[int], None] = self._main.at  # seeds all of them for what is at a position

    @property
    def keeps(self) -> bool:
        """Whether the thing keeps any, as far as it has been looked at."""
        return bool(self._rows)

    def look(self) -> bool:
        """Look for generators that the thing keeps; whether there are others than before."""
        if self._kept is None:
            self._kept = OwnGenerators(it=self._thing)
            changed = bool(self._kept)
        else:
            changed = self._kept.look()
        self._rows = self._kept.rows(self._seed, self._tag)
        self.at = self._at if self._rows else self._main.at
        return changed

    def _at(self, position: int) -> None:
        self._main.at(position)
        for seeder, numbers in self._rows:
            seeder(numbers.at(position))


def _found_in(things: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each generator once. Numpy's are known by what holds their state, which two of them may share."""
    met, ways = _main_ones(), set[str]()
    for way, thing in held_by(things):
        one = _state_of(thing)
        if one is not None and id(one) not in met:
            met.add(id(one))
            while way in ways:  # two members of a set, say
                way += "'"
            ways.add(way)
            yield way, one


def _main_ones() -> set[int]:
    """Those that are seeded anyway."""
    cuda = torch.cuda.default_generators if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    main = [random.random.__self__, torch.default_generator, *cuda]  # type: ignore[attr-defined]
    if np is not None:
        main.append(np.random.random_sample.__self__)  # type: ignore[attr-defined]
    return {id(each) for each in main}


def _state_of(thing: Any) -> Any:
    """The thing itself if it is a generator, of numpy's newer ones the part that has the state; else None."""
    kind = type(thing)
    if issubclass(kind, random.Random):
        return None if issubclass(kind, random.SystemRandom) else thing
    if np is not None and issubclass(kind, np.random.Generator):
        return thing.bit_generator
    numpys = (np.random.RandomState, np.random.BitGenerator) if np is not None else ()
    return thing if issubclass(kind, (torch.Generator, *numpys)) else None


def _seeder(generator: Any) -> Seeder:
    """Seeds a generator in place, by a number below 2**63: about 3 us."""
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
    """One that was made over another generator than numpy's old one."""
    kind = generator.get_state(legacy=False)["bit_generator"]
    generator.set_state(getattr(np.random, kind)(value).state | {"has_gauss": 0, "gauss": 0.0})


def _seed_numpys(generator: np.random.BitGenerator, value: int) -> None:
    generator.state = type(generator)(value).state


def _seed_pcg(generator: Any, value: int) -> None:
    """A sixth of the time that numpy takes to make one of a seed; the increment must be odd (O'Neill 2014)."""
    bits = hashlib.blake2b(value.to_bytes(8, "little"), digest_size=32).digest()
    words = {"state": int.from_bytes(bits[:16], "little"), "inc": int.from_bytes(bits[16:], "little") | 1}
    generator.state = {"bit_generator": type(generator).__name__, "state": words, "has_uint32": 0, "uinteger": 0}
