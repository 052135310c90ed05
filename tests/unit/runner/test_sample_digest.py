"""Test digests of samples: equal for equal content, whatever the memory layout and the order of samples."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from kernel_backend.runner.data.sample_digest import SampleDigests, are_rows, sample_digest, see, see_rows

Pair = namedtuple("Pair", "image label")


@dataclasses.dataclass
class Example:
    image: torch.Tensor
    caption: str


class Opaque:
    """Object whose content is only its attributes, like those of graph libraries."""

    def __init__(self, **values):
        vars(self).update(values)


class Unpicklable:
    def __reduce__(self):
        raise TypeError("stays here")


def picture(value: int = 3):
    images = pytest.importorskip("PIL.Image")
    return images.fromarray(np.full((4, 5, 3), value, dtype=np.uint8))


def array(value: float = 1.0) -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(3, 4) * value


# Each pair: two values that differ as little as they can.
KINDS = {
    "tensor": lambda: (torch.arange(6.0), torch.arange(6.0).nextafter(torch.tensor(9.0))),
    "dtype": lambda: (torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.float32)),
    "shape": lambda: (torch.zeros(2, 3), torch.zeros(3, 2)),
    "bfloat16": lambda: (torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1.5, dtype=torch.bfloat16)),
    "float8": lambda: (torch.ones(3).to(torch.float8_e4m3fn), torch.zeros(3).to(torch.float8_e4m3fn)),
    "conjugated": lambda: (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j])),
    "empty": lambda: (torch.zeros(0, 3), torch.zeros(3, 0)),
    "array": lambda: (array(), array(2)),
    "array of texts": lambda: (np.array(["a", "b"]), np.array(["a", "c"])),
    "array of dates": lambda: (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-02"], "M8[D]")),
    "array of objects": lambda: (np.array([None, "x"], object), np.array([None, "y"], object)),
    "numpy scalar": lambda: (np.float32(1), np.float64(1)),
    "whole numbers": lambda: (2**70, 2**70 + 1),
    "minus zero": lambda: (0.0, -0.0),
    "number and truth": lambda: (1, True),
    "number and its float": lambda: (1, 1.0),
    "text and bytes": lambda: ("a", b"a"),
    "unpaired surrogate": lambda: ("\ud800", "\ud801"),
    "where a text ends": lambda: (("ab", "c"), ("a", "bc")),
    "where a list ends": lambda: ([[1], 2], [[1, 2]]),
    "list and tuple": lambda: ([1, 2], (1, 2)),
    "none": lambda: (None, False),
    "dict": lambda: ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
    "set": lambda: ({1, 2}, {1, 3}),
    "image": lambda: (picture(3), picture(4)),
    "dataclass": lambda: (Example(torch.ones(2), "x"), Example(torch.ones(2), "y")),
    "named tuple": lambda: (Pair(1, 2), (1, 2)),
    "object": lambda: (Opaque(x=torch.ones(3), y="a"), Opaque(x=torch.zeros(3), y="a")),
    "object in a list": lambda: ([Opaque(a=array())], [Opaque(a=array(3))]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_told_from_the_nearest_other_and_not_from_itself(kind):
    one, other = KINDS[kind]()
    assert sample_digest(one) == sample_digest(KINDS[kind]()[0]) is not None
    assert sample_digest(one) != sample_digest(other) is not None


@pytest.mark.parametrize(
    ("as_it_lies", "in_order"),
    [
        (torch.arange(24).reshape(4, 6).T, torch.arange(24).reshape(4, 6).T.contiguous()),
        (torch.arange(24)[::3], torch.arange(24)[::3].clone()),
        (torch.ones(1).expand(5), torch.ones(5)),
        (torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.ones(2, 3, 4, 4)),
        (torch.ones(3, requires_grad=True), torch.ones(3)),
        (torch.nn.Parameter(torch.ones(3)), torch.ones(3)),
        (np.asfortranarray(array()), array()),
        (array()[:, ::2], array()[:, ::2].copy()),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
    ],
)
def test_how_it_lies_in_memory_does_not_count(as_it_lies, in_order):
    assert sample_digest(as_it_lies) == sample_digest(in_order) is not None


@pytest.mark.parametrize("make", [lambda: lambda: 1, Unpicklable, lambda: (torch.ones(2), Unpicklable())])
def test_what_cannot_be_looked_into_is_counted_and_in_no_digest(make):
    assert sample_digest(make()) is None
    assert see([1, make(), 2]) == SampleDigests(3, see([1, 2]).digest, uncovered=1)


def test_a_list_that_holds_itself_is_not_covered():
    endless: list = []
    endless.append(endless)
    assert sample_digest(endless) is None


def test_sparse_tensors_are_not_covered():
    assert sample_digest(torch.eye(3).to_sparse()) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bfloat16, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_rows_of_tensors_are_the_samples_that_they_make(dtype, shape):
    first = (torch.arange(7 * math.prod(shape)).reshape(7, *shape) % 5).to(dtype)
    second = torch.arange(7)
    samples = [(first[row], second[row]) for row in range(7)]
    alone = SampleDigests(7, sum(map(sample_digest, samples)) % 2**64)
    assert see_rows([first, second]) == alone
    assert see_rows([first.flip(0), second.flip(0)]) == alone


samples = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(samples, max_size=8), st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_sum_is_the_same_in_any_order_and_any_batches(values, shuffle, size):
    shuffled = list(values)
    shuffle.shuffle(shuffled)
    found = SampleDigests()
    for begin in range(0, len(shuffled), size):
        found = found.and_(see(shuffled[begin : begin + size]))
    assert found == see(values)


def as_told_apart(value):
    """Return a value with its types, since Python treats 1, 1.0 and True as equal."""
    if isinstance(value, list):
        return ["list", *map(as_told_apart, value)]
    if isinstance(value, dict):
        return {key: as_told_apart(each) for key, each in value.items()}
    return repr(value)


@given(samples, samples)
def test_two_samples_have_one_digest_exactly_where_they_are_equal(one, other):
    assert (sample_digest(one) == sample_digest(other)) == (as_told_apart(one) == as_told_apart(other))


def test_no_random_number_is_drawn():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    see([(torch.randn(3, generator=torch.Generator()), array(), picture(), "x", Opaque(a=1))])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize(
    ("samples", "rows"),
    [
        ([(torch.randn(3, 8, 8), torch.tensor(number)) for number in range(5)], True),
        ([(torch.randn(4, dtype=torch.bfloat16), torch.ones((), dtype=torch.bool)) for _ in range(3)], True),
        ([(torch.randn(2, 3).T, torch.randn(2, dtype=torch.complex64).conj()) for _ in range(3)], True),
        ([(torch.randn(2, requires_grad=True),) for _ in range(2)], True),
        ([(torch.empty(0),)], True),
        ([(torch.randn(2), torch.tensor(1)), (torch.randn(2), torch.tensor(1.0))], False),  # of two kinds
        ([(torch.randn(2),), (torch.randn(2), torch.randn(2))], False),  # of two lengths
        ([(torch.nn.Parameter(torch.randn(2)),)], False),
        ([[torch.randn(2)]], False),
        ([(torch.randn(2), 1)], False),
        ([(), ()], False),
        ([], False),
    ],
)
def test_samples_that_become_rows_have_the_digests_that_each_has_alone(samples, rows):
    assert are_rows(samples) == rows
    if rows:
        assert see_rows(default_collate(samples)) == see(samples)
