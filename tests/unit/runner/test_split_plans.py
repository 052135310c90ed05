"""Test the plans that split calls over ranks, and the notes about them, in one process."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from kernel_backend.runner.forms.script.split import structure
from kernel_backend.runner.forms.script.split.benefit import StepTime, judge
from kernel_backend.runner.forms.script.split.draws import FixedDraws, Unsplittable
from kernel_backend.runner.forms.script.split.rows import candidates, fits, shares

BUSY = StepTime(total=1.0, calls=0.8, exchange=0.1, loading=0.05)


@pytest.mark.parametrize(
    ("step", "whole", "said"),
    [
        (BUSY, 2.0, None),
        (
            BUSY._replace(calls=0.2, loading=0.7),
            2.0,
            "1.1x: most of a step is the data loading, which each rank repeats",
        ),
        (
            BUSY._replace(calls=0.2),
            2.0,
            "1.1x: most of a step is code outside of the split calls, which each rank repeats",
        ),
        (BUSY._replace(calls=0.2, exchange=0.7), 2.0, "0.5x: most of a step is the exchange between the slots"),
        (
            BUSY._replace(calls=0.4, loading=0.4),
            2.0,
            "1.3x: 40% of a step is the data loading, which each rank repeats",
        ),
        (BUSY, 1.1, "1.0x: the rows of one slot take 91% of the time of all rows"),
    ],
)
def test_what_is_said_of_the_slots(step, whole, said):
    assert judge([step], whole, 2) == (said and f"2 slots bring {said}")


def test_one_slow_step_says_nothing():
    slow = BUSY._replace(total=9.0, loading=8.0)
    assert judge([BUSY, BUSY, slow], 2.0, 2) is None


def test_shares_are_all_rows_in_order():
    for rows in range(4, 40):
        for ranks in (2, 3, 4):
            found = [row for begin, count in shares(rows, ranks) for row in range(begin, begin + count)]
            assert found == list(range(rows))


def test_rows_of_equal_number_and_enough_of_them():
    assert fits([(9, 3), (2, 9)], (0, 1), ranks=2)
    assert not fits([(9, 3), (2, 8)], (0, 1), ranks=2)
    assert not fits([(3, 3)], (0,), ranks=2)


def test_a_square_mask_is_no_rows_in_one_of_the_candidates():
    assert (0, None) in list(candidates([(8, 8), (8, 8)], ranks=2))


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    name: str = "output"


def test_nested_values_are_put_together_as_they_were():
    a, b, c = (torch.full((2,), float(number)) for number in range(3))
    value = {"out": Output(a, (b,)), "state": [c, None, 3]}
    new = structure.with_tensors(value, [each + 1 for each in structure.tensors(value)])
    assert type(new["out"]) is Output
    assert new["out"].hidden[0].tolist() == [2.0, 2.0]
    assert new["state"][1:] == [None, 3]
    assert value["out"].logits is a  # the given one stays as it is


@pytest.mark.parametrize("module", [nn.Dropout(0.5), nn.TransformerEncoderLayer(8, 2, 16, 0.5)])
def test_a_trial_draws_nothing(module):
    x = torch.randn(4, 5, 8)
    before = torch.get_rng_state()
    with FixedDraws():
        assert torch.equal(module(x), module(x))
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_that_have_no_mean_are_refused():
    with FixedDraws(), pytest.raises(Unsplittable, match=r"torch\.randperm"):
        torch.randperm(4)
