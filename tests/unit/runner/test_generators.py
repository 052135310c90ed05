"""Test that random generators held by objects are found, of every kind and anywhere, and seeded in place."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from kernel_backend.model.experiment import Config
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.determinism.generators import GeneratorDraws, OwnGenerators
from kernel_backend.runner.determinism.reachability import MOST_ITEMS, held_by
from kernel_backend.runner.determinism.seeds import Numbers
from tests.support.samples import drawn

KINDS = {
    "python": (lambda: random.Random(3), lambda it: it.getrandbits(64)),
    "numpy": (lambda: np.random.default_rng(3), lambda it: int(it.integers(2**62))),
    "its own part": (lambda: np.random.PCG64DXSM(3), lambda it: it.random_raw()),
    "mersenne": (lambda: np.random.Generator(np.random.MT19937(3)), lambda it: int(it.integers(2**62))),
    "philox": (lambda: np.random.Generator(np.random.Philox(3)), lambda it: int(it.integers(2**62))),
    "sfc": (lambda: np.random.Generator(np.random.SFC64(3)), lambda it: int(it.integers(2**62))),
    "numpy's old": (lambda: np.random.RandomState(3), lambda it: it.normal()),
    "old over new": (lambda: np.random.RandomState(np.random.PCG64(3)), lambda it: it.normal()),
    "torch": (lambda: torch.Generator().manual_seed(3), lambda it: float(torch.rand(1, generator=it))),
}


class Holder:
    def __init__(self, **things):
        vars(self).update(things)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_generator_is_seeded_in_place(kind):
    make, draw = KINDS[kind]
    one, other = make(), make()
    draw(one)  # half a pair of normal numbers is left in the old ones
    kept, again = OwnGenerators(it=Holder(noise=one)), OwnGenerators(it=Holder(noise=other))
    assert kept
    assert kept.ways == ["it.noise"]
    kept.seed(5)
    again.seed(5)
    first = [draw(one) for _ in range(5)]
    assert [draw(other) for _ in range(5)] == first
    kept.seed(6)
    assert draw(one) != first[0]
    assert draw(make()) not in first


class Slotted:
    __slots__ = ("__rng", "empty")

    def __init__(self, rng):
        self.__rng = rng


class OfClass:
    rng = random.Random(1)


class Layer(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.noise = rng


def closing_over(rng):
    return lambda x: rng.random() + x


def by_default(x, rng=None):
    return x


def local_class(rng):
    class Local:
        def __getitem__(self, index):
            return rng.random()

    return Local()


AT_TOP_LEVEL = random.Random(2)


def helper(x):
    return [AT_TOP_LEVEL.random() + each for each in x]


class Naming:
    def __getitem__(self, index):
        return helper([index])


class NamingOnlyAtFirst:
    def __init__(self):
        self.first = AT_TOP_LEVEL.random()


PLACES = {
    "an attribute": lambda rng: Holder(a=Holder(b=rng)),
    "a list": lambda rng: [1, [rng]],
    "a tuple of a dict": lambda rng: {"a": (0, rng)},
    "a set": lambda rng: {1, rng},
    "others": lambda rng: OrderedDict(a=deque([rng])),
    "a slot": Slotted,
    "a module": lambda rng: nn.Sequential(nn.Linear(2, 2), nn.Sequential(Layer(rng))),
    "a hook": lambda rng: _hooked(rng),
    "a subset": lambda rng: Subset(ConcatDataset([TensorDataset(torch.ones(3)), Subset(Layered(rng), [0])]), [1]),
    "a partial": lambda rng: functools.partial(by_default, rng=rng),
    "a method": lambda rng: Layer(rng).forward,
    "its own method": lambda rng: rng.gauss,
    "its own builtin method": lambda rng: rng.random,
    "a closure": closing_over,
    "a wrapped function": lambda rng: functools.lru_cache(closing_over(rng)),
    "a default": lambda rng: lambda x, noise=rng: noise.random() + x,
    "a keyword's default": lambda rng: lambda *x, noise=rng: noise.random(),
    "the closure of a class": local_class,
    "a class": lambda rng: OfClass() if setattr(OfClass, "rng", rng) is None else None,
    "a static method": lambda rng: type("Odd", (), {"draw": staticmethod(closing_over(rng))})(),
    "a property": lambda rng: type("Odd", (), {"draw": property(closing_over(rng))})(),
}


class Layered(list):
    def __init__(self, rng):
        super().__init__([1])
        self.rng = rng


def _hooked(rng):
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, given, output: output + rng.random())
    return layer


@pytest.mark.parametrize("place", PLACES)
def test_a_generator_is_found_wherever_it_is_kept(place):
    rng = random.Random(3)
    kept = OwnGenerators(it=PLACES[place](rng))
    assert len(kept.ways) == 1, kept.ways
    before = rng.getstate()
    kept.seed(5)
    assert rng.getstate() != before
    assert OwnGenerators(it=PLACES[place](random.Random(4))).ways == kept.ways


def test_a_generator_at_the_top_level_is_found_where_code_names_it_that_is_still_to_run():
    assert OwnGenerators(it=Naming()).ways == ["it.Naming.__getitem__(global helper)(global AT_TOP_LEVEL)"]
    assert OwnGenerators(it=helper)
    assert not OwnGenerators(it=NamingOnlyAtFirst())


def test_the_main_generators_and_those_of_the_system_are_nobodys_own():
    things = [random.random, np.random.normal, np.random.mtrand._rand, torch.default_generator, random.SystemRandom()]
    assert not OwnGenerators(it=things)


def test_no_code_of_the_users_is_called():
    class Hostile(dict):
        def __getattribute__(self, name):
            raise AssertionError(name)

        __iter__ = __len__ = __eq__ = __hash__ = __bool__ = items = __getattribute__  # type: ignore[assignment]

        @property
        def broken(self):
            raise AssertionError

    hostile = Hostile(a=random.Random(1))
    object.__setattr__(hostile, "b", random.Random(2))
    assert OwnGenerators(it=[hostile, Slotted(None)]).ways == ["it[0]['a']", "it[0].b"]


def test_each_is_found_once_and_numbered_by_its_own_way():
    rng, state = random.Random(1), np.random.PCG64(1)
    circle = [rng, [rng], np.random.Generator(state), np.random.Generator(state), state, random.Random(1)]
    circle.append(circle)
    kept = OwnGenerators(it=circle)
    assert kept.ways == ["it[0]", "it[2]", "it[5]"]
    kept.seed(1)
    assert circle[0].random() != circle[5].random()
    expected = circle[5].getstate()
    kept.seed(1)
    circle[5].random()
    assert circle[5].getstate() == expected
    assert OwnGenerators(it={7: random.Random(1), "7": random.Random(1)}).ways == ["it[0]", "it['7']"]
    assert OwnGenerators(it={random.Random(1), random.Random(1)}).ways == ["it[]", "it[]'"]


def test_data_is_not_searched():
    rng = random.Random(1)
    assert not OwnGenerators(it=[rng] * (MOST_ITEMS + 1))
    assert sum(1 for _ in held_by({"it": [[[number, each] for number in range(900)] for each in range(900)]})) <= 10_000
    assert OwnGenerators(it=Holder(rows=[[[1, 2]] * 900] * 900, transforms=[Holder(rng=rng)]))


@pytest.mark.parametrize("folder", ["/home/ada/.local/lib/python3.11/site-packages", "/usr/lib/python3/dist-packages"])
def test_globals_of_functions_are_searched_but_not_those_of_installed_packages(folder):
    """Installed packages may lie outside of the virtual environment, where it sees those of another place."""

    def holder(file):
        names = {"generator": random.Random(3)}
        exec(compile("def draw():\n    return generator.random()\n", file, "exec"), names)
        return Holder(transform=names["draw"])

    assert OwnGenerators(it=holder("/home/ada/project/noise.py"))
    assert not OwnGenerators(it=holder(f"{folder}/noise.py"))


def test_numbers_of_a_row_are_never_equal_in_the_bits_that_a_generator_reads():
    numbers = Numbers(3, "sample", "it.rng")
    found = torch.tensor([numbers.at(position) for position in range(100_000)])
    assert len((found & (2**31 - 1)).unique()) == len(found)
    assert len((found >> 32).unique()) > 0.999 * len(found)
    assert int(found.min()) >= 0


def test_draws_of_a_position_follow_from_seed_tag_position_and_way():
    def of(seed, tag, position, way="rng"):
        thing = Holder(**{way: np.random.default_rng(9)})
        draws = GeneratorDraws(thing, seed, tag)
        assert draws.look()
        assert not draws.look()
        draws.at(position)
        return int(vars(thing)[way].integers(2**62)), *drawn().tolist()

    wheres = [(0, "sample", 7), (0, "sample", 8), (0, "validation", 7), (1, "sample", 7), (0, "sample", 7, "other")]
    assert len({of(*where)[0] for where in wheres}) == 5
    # And for ever: NUMERICS guards it.
    assert of(*wheres[0]) == (331456117411148597, 4665480353235259305, -5665123618976114538, 8469359758373189124)


def test_only_where_main_generators_run_on_is_one_of_its_own_beyond_the_guarantee():
    ways = OwnGenerators(model=Layer(torch.Generator())).ways
    said = {
        rng: exactness.guarantee(Config(slots=1, rng=rng), 1, torch.device("cpu"), asks_rank=False, generators=ways)
        for rng in ("derived", "stream")
    }
    assert said["derived"].startswith("reproducible")
    assert (
        said["stream"]
        == "not reproducible: model.noise is a random generator of its own, which --rng stream does not save"
    )
