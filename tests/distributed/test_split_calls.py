"""Test that programs without support for ranks train on two slots as on one, with equal bits on both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from split_ranks import Ran, run

pytestmark = pytest.mark.distributed

PROGRAMS = {each.stem: each for each in sorted((Path(__file__).parent / "split_programs").glob("*.py"))}
SPLITS = {  # calls that are split; 0: all run whole on each rank
    "carried_state": 9,
    "checkpointed": 8,
    "classifier": 12,
    "coupled": 30,
    "gradient_penalty": 36,
    "own_loss": 9,
    "policy": 0,
}
DRAWS = {"drawing", "parted"}


@pytest.fixture(scope="module", params=["torch", pytest.param("horovod", marks=pytest.mark.long)])
def two(request, tmp_path_factory) -> dict[str, list[Ran]]:
    """Provide the results of all programs on two ranks, with the numbers of split calls."""
    return run(tmp_path_factory.mktemp(request.param), list(PROGRAMS.values()), 2, request.param)


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> dict[str, list[Ran]]:
    """Provide the results of all programs on one rank."""
    return run(tmp_path_factory.mktemp("one"), list(PROGRAMS.values()), 1)


@pytest.mark.parametrize("name", [each for each in PROGRAMS if each not in DRAWS])
def test_two_slots_train_what_one_does(two, one, name):
    (whole,) = one[name]
    for ran in two[name]:
        assert ran.error is None
        assert ran.values.keys() == whole.values.keys()
        for key, value in whole.values.items():
            torch.testing.assert_close(
                ran.values[key], value, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
            )


@pytest.mark.parametrize("name", [each for each in PROGRAMS if each != "parted"])
def test_ranks_have_equal_bits(two, name):
    first, second = two[name]
    assert first.output == second.output
    assert {key: as_bytes(each) for key, each in first.values.items()} == {
        key: as_bytes(each) for key, each in second.values.items()
    }


@pytest.mark.parametrize("name", SPLITS)
def test_calls_are_split_where_that_is_right(two, name):
    assert [each.splits for each in two[name]] == [SPLITS[name]] * 2


def test_random_numbers_within_a_split_call_are_other_ones_for_each_row_and_call(two, one):
    (whole,), ran = one["drawing"], two["drawing"][0]
    assert not torch.equal(ran.values["drawn"], whole.values["drawn"])  # one process draws dropout from its stream
    rows = ran.values["first"]
    assert len({as_bytes(each) for each in rows}) == len(rows)


def test_ranks_whose_numbers_have_parted_are_told(two):
    for ran in two["parted"]:
        assert "with other numbers than rank" in ran.error
        assert "Linear" in ran.error


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("bare", "no module with trained parameters is called, and each computes the whole step"),
        ("evaluating", "Linear is trained in evaluation mode, and a split needs training mode: call its train()"),
        ("policy", "calls of Sequential run whole on each, since it is called with 1 row, and a split needs 4"),
        ("loading", "most of a step is the data loading, which each rank repeats"),
    ],
)
def test_slots_that_bring_little_are_told_once(two, name, note):
    (text,) = two[name][0].notes
    assert text.startswith("2 slots bring ")
    assert text.endswith(f"x: {note}")


def as_bytes(value):
    return value.numpy().tobytes() if torch.is_tensor(value) else value
